package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The keys of the index. A resource has a number, in the order in which the log first has it. Strings have
// their length before them, so that none is a prefix of another. Revisions are 8 bytes, big-endian.
//
//	m name                                      what there is one of: see the names below
//	r group resource                         -> number of the resource, as uvarint
//	f number                                 -> floors: two revisions
//	t revision                               -> log time of a batch, in nanoseconds; of about one in sampleEvery revisions
//	v number name namespace ^revision        -> deleted (1 byte): one version of an object; the newest is first
//	c scope revision                         -> change: one for each change in the scope
//	b scope revision chunk (2 bytes)         -> revisions of the objects that exist in the scope at that revision
//
// A scope is a number and 0: the resource, or a number, 1 and a namespace: the resource in a namespace.
const (
	oneKey      = 'm'
	resourceKey = 'r'
	floorKey    = 'f'
	timeKey     = 't'
	versionKey  = 'v'
	changeKey   = 'c'
	baseKey     = 'b'
)

var (
	formatName = []byte{oneKey, 'f'} // the format of the keys, 1 byte
	cursorName = []byte{oneKey, 'c'} // eventlog.Head: the index has all up to there
	oldestName = []byte{oneKey, 'o'} // the oldest revision that is kept
	epochsName = []byte{oneKey, 'e'} // []Epoch in JSON
	clocksName = []byte{oneKey, 'k'} // eventlog.ClockSets in JSON
)

var errDamaged = errors.New("a key or a value is not one that this version writes")

// format changes with the meaning of the keys. An index of another format is made again.
const format = 1

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendRevision(b []byte, revision uint64) []byte {
	return binary.BigEndian.AppendUint64(b, revision)
}

func keyOfResource(r schema.GroupResource) []byte {
	return appendString(appendString([]byte{resourceKey}, r.Group), r.Resource)
}

func parseResource(key []byte) (r schema.GroupResource, err error) {
	key = key[1:]
	for _, s := range []*string{&r.Group, &r.Resource} {
		n, size := binary.Uvarint(key)
		if size <= 0 || n > uint64(len(key)-size) {
			return r, errDamaged
		}
		*s, key = string(key[size:size+int(n)]), key[size+int(n):]
	}
	return r, nil
}

func keyOfFloor(number uint64) []byte { return binary.AppendUvarint([]byte{floorKey}, number) }

func keyOfTime(revision uint64) []byte { return appendRevision([]byte{timeKey}, revision) }

// appendVersions appends the beginning of the keys of all versions of an object.
func appendVersions(b []byte, number uint64, name, namespace string) []byte {
	return appendString(appendNamed(b, number, name), namespace)
}

// appendNamed appends the beginning of the keys of all objects with a name, in any namespace.
func appendNamed(b []byte, number uint64, name string) []byte {
	return appendString(binary.AppendUvarint(append(b, versionKey), number), name)
}

// revisionOfVersion returns the revision at the end of a version's key.
func revisionOfVersion(key []byte) uint64 { return ^revisionOf(key) }

// isDeletion reports whether the value of a version says that the object did not exist from then on.
func isDeletion(value []byte) bool { return len(value) == 1 && value[0] == 1 }

// revisionOf returns the revision at the end of a key.
func revisionOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// appendScope appends a scope: a resource, or a resource in a namespace.
func appendScope(b []byte, number uint64, namespace string) []byte {
	b = binary.AppendUvarint(b, number)
	if namespace == "" {
		return append(b, 0)
	}
	return appendString(append(b, 1), namespace)
}

// newKey returns a new slice: a kind of key, a scope, and a revision.
func newKey(kind byte, scope []byte, revision uint64) []byte {
	b := make([]byte, 0, 1+len(scope)+8+2)
	return appendRevision(append(append(b, kind), scope...), revision)
}

// end returns the first key behind all keys with a prefix.
func end(prefix []byte) []byte {
	b := slices.Clone(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i]++; b[i] != 0 {
			return b[:i+1]
		}
	}
	return nil
}

// prefixOptions returns the options of an iterator over the keys with a prefix.
func prefixOptions(prefix []byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: prefix, UpperBound: end(prefix)}
}

// change is the value of a change in a scope. It has the counts of the scope after the change, so that the
// newest change is all that the next one needs to know.
type change struct {
	deleted  bool
	previous uint64 // the revision of the previous version; 0 if the object was new
	live     uint64 // the number of objects that exist
	since    uint64 // the number of changes since the newest base
}

func (c *change) append(b []byte, revision uint64) []byte {
	back := uint64(0)
	if c.previous != 0 {
		back = revision - c.previous
	}
	back <<= 1
	if c.deleted {
		back |= 1
	}
	b = binary.AppendUvarint(b, back)
	b = binary.AppendUvarint(b, c.live)
	return binary.AppendUvarint(b, c.since)
}

func parseChange(revision uint64, value []byte) (c change, err error) {
	var numbers [3]uint64
	for i := range numbers {
		n, size := binary.Uvarint(value)
		if size <= 0 {
			return c, errDamaged
		}
		numbers[i], value = n, value[size:]
	}
	back := numbers[0] >> 1
	if back > revision || len(value) > 0 {
		return c, errDamaged
	}
	c = change{deleted: numbers[0]&1 != 0, live: numbers[1], since: numbers[2]}
	if back != 0 {
		c.previous = revision - back
	}
	return c, nil
}

// keyOfBase returns the key of a chunk of a base.
func keyOfBase(scope []byte, revision uint64, chunk uint16) []byte {
	return binary.BigEndian.AppendUint16(newKey(baseKey, scope, revision), chunk)
}

// isOf reports whether a key is of a kind, of a scope, and has a revision behind that.
func isOf(key []byte, kind byte, scope []byte) bool {
	return len(key) == 1+len(scope)+8 && key[0] == kind && bytes.Equal(key[1:1+len(scope)], scope)
}

func isOfBase(key, scope []byte) bool { return len(key) > 2 && isOf(key[:len(key)-2], baseKey, scope) }

// appendRevisions encodes ascending revisions, each as its difference to the one before.
func appendRevisions(b []byte, revisions []uint64) []byte {
	before := uint64(0)
	for _, r := range revisions {
		b = binary.AppendUvarint(b, r-before)
		before = r
	}
	return b
}

// parseRevisions appends the revisions that appendRevisions encoded.
func parseRevisions(to []uint64, b []byte) ([]uint64, error) {
	for before := uint64(0); len(b) > 0; {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errDamaged
		}
		before += n
		to, b = append(to, before), b[size:]
	}
	return to, nil
}
