package history

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Superseded returns the revision at which a version of an object was superseded: that of the next change of the same
// name; 0 if there is none. It returns the revision of the version itself if the index has forgotten it
// ([Store.Forget]). The error is [ErrBehind] if the index has not reached that revision, for example while it is made
// again: it then knows nothing of the version, forgotten or not.
func (s *Store) Superseded(_ context.Context, r schema.GroupResource, namespace, name string, revision uint64) (at uint64, err error) {
	v := s.look()
	if v.head.Revision < revision {
		return 0, fmt.Errorf("%w: it has reached revision %d, not yet %d", ErrBehind, v.head.Revision, revision)
	}
	info, found := v.resources[r]
	if !found {
		return revision, nil
	}
	prefix := appendVersions(nil, info.number, name, namespace)
	key := appendRevision(bytes.Clone(prefix), ^revision)
	return at, v.read(prefixOptions(prefix), func(it *pebble.Iterator) error {
		if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
			at = revision
		} else if it.Prev() {
			at = revisionOfVersion(it.Key())
		}
		return nil
	})
}
