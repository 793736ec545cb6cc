package edit

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/schemas/jsonvalue"
)

// merged applies a merge patch to the decoded object, which is faster than patching JSON. It returns nil if the patch
// must be applied as JSON: for built-in kinds, and if there are errors or warnings to report.
func (d *Draft) merged() *Object {
	if !d.merges() || d.Kind.Kind.Builtin || d.Kind.Kind.Face != nil || bytes.Contains(d.Body.Raw, []byte("managedFields")) {
		return nil
	}
	asked, twice, err := jsonvalue.UnmarshalObjectStrict(d.Body.Raw)
	if err != nil || len(twice) > 0 || asked == nil {
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

// merges reports whether the request is a JSON merge patch.
func (d *Draft) merges() bool {
	return d.Info.Verb == "patch" && types.PatchType(d.Body.MediaType) == types.MergePatchType
}

// patchedText returns the patched object as JSON, for error messages.
func (d *Draft) patchedText() []byte {
	if d.patchedBody == nil && d.Old != nil && d.merges() {
		if target, err := d.patchTarget(); err == nil {
			d.patchedBody, _, _ = patch.Apply(d.Kind.GroupVersionKind(), types.MergePatchType, target, d.Body.Raw)
		}
	}
	return d.patchedBody
}
