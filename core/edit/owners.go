package edit

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dropDuplicateOwners leaves each owner of an object there once, and warns of it in
// upstream's words, which differ for a patch.
func (d *Draft) dropDuplicateOwners(meta *metav1.ObjectMeta) {
	if len(meta.OwnerReferences) < 2 {
		return
	}
	type key struct {
		owner             metav1.OwnerReference // without its pointers
		controller, block string
	}
	seen := make(map[key]bool, len(meta.OwnerReferences)) // they may be many, all with one uid
	var once []metav1.OwnerReference
	var twice []string
	for _, owner := range meta.OwnerReferences {
		k := key{owner, said(owner.Controller), said(owner.BlockOwnerDeletion)}
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

// said is what an optional flag says, "" if it is not there.
func said(flag *bool) string {
	if flag == nil {
		return ""
	}
	return strconv.FormatBool(*flag)
}
