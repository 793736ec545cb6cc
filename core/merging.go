package core

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
func (r *Request) merged() *object {
	if !r.merges() || r.kind.Kind.Builtin || r.kind.Kind.Face != nil || bytes.Contains(r.body.raw, []byte("managedFields")) {
		return nil
	}
	var asked map[string]any
	if twice, err := kjson.UnmarshalStrict(r.body.raw, &asked); err != nil || len(twice) > 0 || asked == nil {
		return nil
	}
	version, kind := r.kind.GroupVersionKind().ToAPIVersionAndKind()
	for name, is := range map[string]string{"apiVersion": version, "kind": kind} {
		if said, ok := asked[name]; ok && said != is {
			return nil
		}
	}
	oldMeta, oldContent, err := r.decodeStored(r.old.JSON)
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
	r.oldMeta, r.oldContent = oldMeta, oldContent // decoded once
	r.mistyped, r.body.patched = nil, nil
	return &object{meta: meta, content: content}
}

// merges tells whether the request is a merge patch.
func (r *Request) merges() bool {
	return r.info.Verb == "patch" && types.PatchType(r.body.mediaType) == types.MergePatchType
}

// patchedText is the JSON that a patch comes to, for errors to show.
func (r *Request) patchedText() []byte {
	if r.body.patched == nil && r.old != nil && r.merges() {
		r.body.patched, _, _ = patch.Apply(r.kind.GroupVersionKind(), types.MergePatchType, r.patched(), r.body.raw)
	}
	return r.body.patched
}
