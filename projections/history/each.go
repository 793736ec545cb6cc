package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version is a version of an object in the index.
type Version struct {
	schema.GroupResource
	Namespace, Name string
	Revision        uint64
	Deleted         bool
}

// Floors returns the oldest revision at which the objects of each resource can be read.
func (s *Store) Floors() map[schema.GroupResource]uint64 {
	v := s.look()
	floors := make(map[schema.GroupResource]uint64, len(v.resources))
	for r := range v.resources {
		floors[r] = s.OldestOf(r)
	}
	return floors
}

// Each calls visit with all versions up to a revision that reads at a floor or later depend on, by resource, name and
// namespace, the newest version first. Two indexes of the same log agree on them, whatever was forgotten below the
// floors. It ends with the first error of visit, or with that of the context.
func (s *Store) Each(ctx context.Context, floors map[schema.GroupResource]uint64, upto uint64, visit func(Version) error) error {
	v := s.look()
	resources := slices.SortedFunc(maps.Keys(v.resources), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	for _, r := range resources {
		w := &eachVersion{resource: r, floor: floors[r], upto: upto, visit: visit}
		err := v.read(prefixOptions(binary.AppendUvarint([]byte{versionKey}, v.resources[r].number)), func(it *pebble.Iterator) error {
			for more := it.First(); more; more = it.Next() {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := w.key(it.Key(), it.Value()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachVersion goes through the versions of one resource.
type eachVersion struct {
	resource    schema.GroupResource
	floor, upto uint64
	visit       func(Version) error
	object      []byte // the key of the object of the last version, without the revision
	done        bool   // a version at the floor or before it has been seen
}

func (w *eachVersion) key(key, value []byte) error {
	version := Version{GroupResource: w.resource, Revision: revisionOfVersion(key), Deleted: bytes.Equal(value, []byte{1})}
	if object := key[:len(key)-8]; !bytes.Equal(object, w.object) {
		w.object, w.done = append(w.object[:0], object...), false
	}
	if w.done || version.Revision > w.upto {
		return nil
	}
	if w.done = version.Revision <= w.floor; w.done && version.Deleted {
		return nil // it may have been forgotten
	}
	_, size := binary.Uvarint(key[1:])
	rest := key[1+size : len(key)-8]
	for _, text := range []*string{&version.Name, &version.Namespace} {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return errDamaged
		}
		*text, rest = string(rest[size:size+int(n)]), rest[size+int(n):]
	}
	return w.visit(version)
}
