package edit

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/patch"
)

// merged is what a merge patch makes of the object as it is, which is decoded for that anyway.
// It is nil for built-in kinds, and where something would have to be said of the patch or the
// metadata: then the patch is applied to JSON, as upstream does, and that is decoded.
func (d *Draft) merged() *Object {
	if !d.merges() || d.Kind.Kind.Builtin || d.Kind.Kind.Face != nil || bytes.Contains(d.Body.Raw, []byte("managedFields")) {
		return nil
	}
	var asked map[string]any
	if twice, err := kjson.UnmarshalStrict(d.Body.Raw, &asked); err != nil || len(twice) > 0 || asked == nil {
		return nil
	}
	version, kind := d.Kind.GroupVersionKind().ToAPIVersionAndKind()
	for name, is := range map[string]string{"apiVersion": version, "kind": kind} {
		if said, ok := asked[name]; ok && said != is {
			return nil
		}
	}
	oldMeta, oldContent, err := d.DecodeStored(d.Old.JSON)
	if err != nil {
		return nil
	}
	content := runtime.DeepCopyJSON(oldContent)
	patch.Merge(content, asked)
	meta, unknown, err := metadata.Decode(content)
	if err != nil || len(unknown) > 0 {
		return nil
	}
	content["apiVersion"], content["kind"] = version, kind
	d.OldMeta, d.OldContent = oldMeta, oldContent // decoded once
	d.Mistyped, d.patchedBody = nil, nil
	return &Object{Meta: meta, Content: content}
}

// merges tells whether the request is a merge patch.
func (d *Draft) merges() bool {
	return d.Info.Verb == "patch" && types.PatchType(d.Body.MediaType) == types.MergePatchType
}

// patchedText is the JSON that a patch comes to, for errors to show.
func (d *Draft) patchedText() []byte {
	if d.patchedBody == nil && d.Old != nil && d.merges() {
		d.patchedBody, _, _ = patch.Apply(d.Kind.GroupVersionKind(), types.MergePatchType, d.patchTarget(), d.Body.Raw)
	}
	return d.patchedBody
}
