package history

import (
	"crypto/sha256"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// On returns options for a store on another file system.
func On(files vfs.FS, o Options) Options {
	o.files = files
	return o
}

// Keys calls visit with all keys and values of the index that queries see. The error is ErrBehind if there is none.
func Keys(s *Store, visit func(key, value []byte)) error {
	x := s.visible.Load()
	if x == nil {
		return ErrBehind
	}
	return x.read(nil, func(it *pebble.Iterator) error {
		for it.First(); it.Valid(); it.Next() {
			visit(it.Key(), it.Value())
		}
		return nil
	})
}

// Sum returns a hash over all keys and values of a store's index.
func Sum(t testing.TB, s *Store) (sum [sha256.Size]byte) {
	t.Helper()
	all := sha256.New()
	if err := Keys(s, func(key, value []byte) {
		all.Write(appendString(appendString(nil, string(key)), string(value)))
	}); err != nil {
		t.Fatal(err)
	}
	all.Sum(sum[:0])
	return sum
}

// SmallMemory makes stores that are opened during a test write their files early.
func SmallMemory(t testing.TB) {
	memtable, atOnce := memtableBytes, atOnceBytes
	memtableBytes, atOnceBytes = 64<<10, 4<<10
	t.Cleanup(func() { memtableBytes, atOnceBytes = memtable, atOnce })
}

// Position returns the revision up to which a store's index goes.
func Position(s *Store) uint64 { return s.current.view.Load().head.Revision }
