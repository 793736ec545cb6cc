package edit

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dropDuplicateOwners removes duplicate owner references and warns of them in kube-apiserver's words, which differ
// for a patch.
func (d *Draft) dropDuplicateOwners(meta *metav1.ObjectMeta) {
	if len(meta.OwnerReferences) < 2 {
		return
	}
	type key struct {
		owner             metav1.OwnerReference // without its pointer fields
		controller, block string
	}
	seen := make(map[key]bool, len(meta.OwnerReferences)) // a map, because there may be many with the same uid
	var once []metav1.OwnerReference
	var twice []string
	for _, owner := range meta.OwnerReferences {
		k := key{owner, flagText(owner.Controller), flagText(owner.BlockOwnerDeletion)}
		k.owner.Controller, k.owner.BlockOwnerDeletion = nil, nil
		if seen[k] {
			twice = append(twice, string(owner.UID))
			continue
		}
		seen[k] = true
		once = append(once, owner)
	}
	if len(twice) == 0 {
		return
	}
	when := ""
	if d.Info.Verb == "patch" {
		when = " after mutating admission happens"
	}
	meta.OwnerReferences = once
	d.Warn(".metadata.ownerReferences contains duplicate entries" + when +
		"; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + strings.Join(twice, ", "))
}

// flagText returns the value of an optional flag, "" if it is not set.
func flagText(flag *bool) string {
	if flag == nil {
		return ""
	}
	return strconv.FormatBool(*flag)
}
