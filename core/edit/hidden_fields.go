package edit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/canonical"
	"stele.dev/stele/core/metadata"
)

// A schema that loses a field hides it: stored objects keep it, and show it again once a schema
// has it again. A write replaces only the parts of an object that it changes, where spec, status and
// each other field at the top is a part. So a label that is added, or a status that is updated, does not
// drop a field of the spec that the client could not see.

// kept returns the object as it is to be kept, where the stored one has fields that the policy in force
// does not show, in parts that the write leaves as they were shown; else nil.
func (d *Draft) keepHidden(meta *metav1.ObjectMeta, content map[string]any) ([]byte, error) {
	stored := d.Old.Kept()
	if stored == nil || d.Kind.Kind.Face != nil {
		return nil, nil
	}
	_, was, err := metadata.DecodeStored(stored)
	if err != nil {
		return nil, err
	}
	_, pruned, err := metadata.DecodeStored(stored)
	if err != nil {
		return nil, err
	}
	if unknown, _, _ := d.Kind.Kind.Stored().Storage().Program.TryPrepare(pruned); len(unknown) == 0 {
		return nil, nil // it differs by defaults, which are written with the rest
	}
	_, shown, err := metadata.DecodeStored(d.Old.JSON)
	if err != nil {
		return nil, err
	}
	next := make(map[string]any, len(content))
	keeps := false
	for part, value := range content {
		next[part] = value
		if is, has := shown[part]; has && canonical.Equal(is, value) && was[part] != nil && !canonical.Equal(was[part], value) {
			next[part], keeps = was[part], true
		}
	}
	for part, value := range was { // a part that the policy in force does not have
		if _, shows := shown[part]; !shows && content[part] == nil {
			next[part], keeps = value, true
		}
	}
	if !keeps {
		return nil, nil
	}
	return d.encode(meta, next)
}
