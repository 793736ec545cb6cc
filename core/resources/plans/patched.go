package plans

import (
	"cmp"
	"mime"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/core/write/edit"
	"stele.dev/stele/core/write/managed"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
)

// wasChanged reports whether mutating admission changed the object of the write.
func (w *write) wasChanged() bool { return len(w.Meta.GetDecisions().GetMutations()) > 0 }

// refused reports whether the record is of a refusal.
func (w *write) refused() bool { return w.Meta.GetDecision() != nil }

// mediaType returns the media type of the body, without parameters.
func (w *write) mediaType() string {
	mediaType, _, err := mime.ParseMediaType(w.request.GetMediaType())
	if err != nil {
		return ""
	}
	return mediaType
}

// applies reports whether the write is a server-side apply.
func (w *write) applies() bool {
	return w.access.Verb == "patch" && types.PatchType(w.mediaType()) == types.ApplyYAMLPatchType
}

// query returns the query of the request.
func (w *write) query() url.Values {
	target, err := url.ParseRequestURI(w.request.GetUri())
	if err != nil {
		return nil
	}
	return target.Query()
}

// forces reports whether an applied configuration takes fields from others. A stored write had no conflicts, or it was forced.
func (w *write) forces() bool {
	if !w.refused() {
		return true
	}
	values, options := w.query(), metav1.PatchOptions{}
	return metav1.Convert_url_Values_To_v1_PatchOptions(&values, &options, nil) == nil && options.Force != nil && *options.Force
}

// fieldManager returns the manager of the write. The record has none if the request was refused before its options were read.
func (w *write) fieldManager() string {
	if !w.refused() {
		return w.request.GetFieldManager()
	}
	return cmp.Or(w.request.GetFieldManager(), w.query().Get("fieldManager"), metadata.FieldManager(w.request.GetUserAgent()))
}

// askedAgain sets the object that the client asked for in a write that was refused, or whose object rules changed after that: from its
// body, or by its patch, which is applied again to the object that it met. It returns false if that cannot be done.
func (w *write) askedAgain(payload *policy.Object) bool {
	if w.Request == nil || w.version.Kind != w.bench.version.Kind {
		return false
	}
	var asked *policy.Object
	switch w.access.Verb {
	case "patch":
		asked = w.patched()
	case "update":
		if content, ok := w.body(); ok {
			asked = &policy.Object{Meta: payload.Meta.DeepCopy(), Content: content}
		}
	}
	if asked == nil {
		return false
	}
	w.asked = true
	if w.access.Subresource == "status" {
		if w.old == nil {
			return false
		}
		w.next = &policy.Object{Meta: payload.Meta, Content: admission.WithStatus(w.old.Content, asked.Content)}
		return true
	}
	metadata.KeepSystemFields(asked.Meta, payload.Meta)
	asked.Meta.Name, asked.Meta.Namespace = payload.Meta.Name, payload.Meta.Namespace
	w.next = asked
	return true
}

// patched returns the result of a patch, before rules changed it; nil if it cannot be applied again.
func (w *write) patched() *policy.Object {
	var met []byte
	if w.Before != nil {
		text, err := w.bench.stored(w.Before)
		if err != nil {
			return nil
		}
		met = edit.WithRevision(shownIn(w.version, text), w.Previous)
	}
	if w.applies() {
		return w.appliedTo(met)
	}
	if met == nil {
		return nil
	}
	as, err := patch.TypeOf(w.request.GetMediaType(), w.version.GroupVersionKind())
	if err != nil {
		return nil
	}
	result, _, err := patch.Apply(w.version.GroupVersionKind(), as, met, w.Request)
	if err != nil {
		return nil
	}
	o, err := decode(result)
	if err != nil {
		return nil
	}
	return o
}

// appliedTo returns what an applied configuration made of an object, which may be nil.
func (w *write) appliedTo(met []byte) *policy.Object {
	text, err := yaml.YAMLToJSON(w.Request)
	if err != nil {
		return nil
	}
	var configuration map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &configuration) != nil {
		return nil
	}
	var old *policy.Object
	if met != nil {
		meta, content, err := metadata.DecodeStored(met)
		if err != nil {
			return nil
		}
		old = &policy.Object{Meta: meta, Content: content}
	}
	o, err := managed.Of(w.version, w.access.Subresource).Apply(old, configuration, w.fieldManager(), w.forces(), w.Time)
	if err != nil {
		return nil
	}
	o.Meta.ResourceVersion, o.Meta.ManagedFields = "", nil
	return o
}
