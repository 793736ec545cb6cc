package replicas

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errOthers says why a write is refused.
var errOthers = errors.New("only the replicas of this log write what they read about each other: leases in " + Namespace + " with the label " +
	IdentityLabel + "=" + Identity + ", the lease " + LeaderLease + " and the configmap " + KeysMap + "; they can be deleted")

// CheckWriter returns an error if a client writes an object that replicas read about each other. before is the stored object's
// metadata, nil for a create. It holds for administrators, too: what replicas believe is never what somebody else has
// written.
func CheckWriter(resource schema.GroupResource, namespace string, before, after *metav1.ObjectMeta) error {
	if namespace != Namespace {
		return nil
	}
	switch resource {
	case leaseResource:
		if after.Name == LeaderLease || after.Labels[IdentityLabel] == Identity || before != nil && before.Labels[IdentityLabel] == Identity {
			return errOthers
		}
	case configMaps:
		if after.Name == KeysMap {
			return errOthers
		}
	}
	return nil
}
