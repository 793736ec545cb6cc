package rendered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/tidwall/gjson"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/managed"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// write is a write of a rendered kind. It never changes what the policy says. What the policy says already is answered as kube-apiserver
// answers it. If the policy has the mode Match for the kind, labels and annotations are kept as an overlay, an object can be created
// once, and deleted. All other writes are refused with the place in the policy to change. So installers find what the policy has.
type write struct {
	v *service
	c *call.Call
	// Decode sets these, anew in each round.
	creates bool            // whether the write creates an object that clients do not see, or would
	item    *item           // the object that the write is about
	there   *objects.Object // the same, as it is shown
	next    *overlay        // what the write keeps beside the object; nil if it changes nothing
	code    int
	// Commit sets it.
	payload []byte // next, as the log has it
}

// matches reports whether the policy accepts writes that agree with it.
func (w *write) matches() bool {
	return w.v.kind.matches(w.c.Tip.Policy.Base().Form())
}

// Decode finds out what the write changes, and refuses it if that is more than an overlay may say.
func (w *write) Decode(context.Context) error {
	*w = write{v: w.v, c: w.c, code: http.StatusOK}
	c, k := w.c, w.v.kind
	c.ResetWarnings()
	name := c.Key.Name
	if c.Info.Verb == "create" {
		body, err := w.body()
		if err != nil {
			return err
		}
		name = gjson.GetBytes(body, "metadata.name").String()
	}
	state := At(k, c.Tip, c.Tip.Objects)
	if name != "" {
		w.item = state.find(c.Key.Namespace, name)
	}
	w.creates = c.Info.Verb == "create"
	if w.item == nil || w.item.hidden() {
		if err := w.creating(); err != nil {
			return err
		}
	}
	if w.creates && w.matches() {
		if err := c.RequireActiveNamespace(); err != nil {
			return err
		}
	}
	if w.item == nil || w.item.hidden() && !(w.creates && w.matches()) {
		return w.absent(name)
	}
	w.there = state.object(*w.item)
	if p := c.Decision; p != nil && p.Pending != nil && c.Info.Verb != "create" && w.matches() {
		return status.Forbidden(&c.Access, p) // what is kept is not what the condition of a grant is about
	}
	switch c.Info.Verb {
	case "create":
		return w.create()
	case "update":
		body, err := w.body()
		if err != nil {
			return err
		}
		if err := w.typed(body, nil); err != nil {
			return err
		}
		return w.become(body, nil)
	case "patch":
		return w.patch()
	}
	return w.remove()
}

// creating finds out whether a write of an object that is not there creates it.
func (w *write) creating() error {
	c := w.c
	switch c.Info.Verb {
	case "update":
		if _, err := w.body(); err != nil {
			return err
		}
		w.creates = c.CreatesOnUpdate()
	case "patch":
		patchType, err := c.PatchType()
		if err != nil {
			return err
		}
		w.creates = types.PatchType(patchType) == types.ApplyYAMLPatchType
	}
	return nil
}

// absent returns the error of a write to an object that clients do not see.
func (w *write) absent(name string) error {
	c := w.c
	if !w.creates && c.Info.Verb != "deletecollection" {
		return status.NotFound(c.Resource(), name)
	}
	return w.refusal(w.v.kind.Find(c.Tip.Policy.Base().Form(), c.Key.Namespace, name), name, w.creates, "")
}

// body returns the object in the body as JSON, and reads the options of the write.
func (w *write) body() ([]byte, error) {
	c := w.c
	if c.Body != nil {
		return c.Body.Raw, nil
	}
	var b *call.Body
	var err error
	switch c.Info.Verb {
	case "create", "update":
		if b, err = c.ReadJSON(c.Kind.GroupVersionKind()); err == nil {
			b.MediaType = negotiate.JSON
		}
	case "patch":
		b = &call.Body{}
		if b.MediaType, err = c.PatchType(); err == nil {
			b.Raw, err = call.ReadLimited(c.HTTP)
		}
	default:
		b = &call.Body{MediaType: negotiate.JSON}
		if b.Raw, err = call.ReadLimited(c.HTTP); err == nil && len(b.Raw) > 0 {
			b.MediaType, err = negotiate.Body(c.HTTP)
		}
	}
	if err == nil {
		err = c.ReadOptions(b)
	}
	if err != nil {
		return nil, err
	}
	c.Body = b
	return b.Raw, nil
}

// create answers a create of an object that the policy shows: 409, or 201 if it agrees with the policy and nobody has created it yet.
func (w *write) create() error {
	c, name := w.c, w.item.entry.Name
	exists := status.AlreadyExists(c.Resource(), name)
	if !w.matches() || w.item.overlay.claimed() {
		return exists
	}
	if err := w.typed(c.Body.Raw, nil); err != nil {
		return err
	}
	if gjson.GetBytes(c.Body.Raw, "metadata.resourceVersion").String() != "" {
		return status.BadRequest("resourceVersion should not be set on objects to be created")
	}
	difference, err := w.difference(c.Body.Raw)
	if err != nil {
		return err
	}
	if difference != "" {
		exists.ErrStatus.Message += ": it is defined by the policy at " + w.item.entry.Source.String() + ", and differs: " + difference
		return exists
	}
	if p := c.Decision; p != nil && p.Pending != nil {
		return status.Forbidden(&c.Access, p)
	}
	w.code = http.StatusCreated
	if err := w.become(c.Body.Raw, nil); err != nil {
		return err
	}
	if w.next == nil {
		w.next = w.item.overlay.written(w.item.entry, &metav1.ObjectMeta{})
		w.next.created = true
	}
	return nil
}

// patch answers a patch or an apply.
func (w *write) patch() error {
	text, err := w.body()
	if err != nil {
		return err
	}
	gvk, t := w.c.Kind.GroupVersionKind(), types.PatchType(w.c.Body.MediaType)
	var applied map[string]any
	if t == types.ApplyYAMLPatchType {
		if text, _, err = wire.Decode("application/yaml", text, gvk); err != nil {
			return call.Unfit(gvk, err)
		}
		version, kind := gvk.ToAPIVersionAndKind()
		if said := gjson.GetManyBytes(text, "apiVersion", "kind"); said[0].String() != version || said[1].String() != kind {
			return status.BadRequestf("the applied configuration is %q of %q, and the path is that of %q of %q", said[1], said[0], kind, version)
		}
		if err := json.Unmarshal(text, &applied); err != nil {
			return call.Unfit(gvk, err)
		}
		t = types.StrategicMergePatchType // nobody owns what the policy says, so it is merged
	}
	after, strict, err := patch.Apply(gvk, t, w.there.JSON, text)
	if err != nil {
		return err
	}
	if err := w.typed(after, strict); err != nil {
		return err
	}
	return w.become(after, applied)
}

// become makes the object that a write leads to the overlay to keep. applied is the applied configuration; nil if the write does not
// apply one.
func (w *write) become(after []byte, applied map[string]any) error {
	if w.c.Info.Verb != "create" {
		if err := w.conflicts(after); err != nil {
			return err
		}
	}
	difference, err := w.difference(after)
	if err != nil {
		return err
	}
	if difference != "" {
		return w.refusal(w.item.entry, w.item.entry.Name, false, difference)
	}
	next, err := w.overlaid(after, applied)
	if err != nil {
		return err
	}
	switch path := w.meant(next); {
	case w.item.overlay.same(next):
		return nil
	case path != "":
		return w.refusal(w.item.entry, w.item.entry.Name, false, path)
	case !w.matches():
		// Only what would be seen of it counts: who has applied a label that is there is not kept.
		if was := w.item.overlay; was != nil {
			next.managers = was.managers
		} else {
			next.managers = nil
		}
		delete(next.annotations, lastApplied)
		if w.item.overlay.same(next) {
			return nil
		}
		return w.refusal(w.item.entry, w.item.entry.Name, false, "metadata")
	}
	errs := metav1validation.ValidateLabels(next.labels, field.NewPath("metadata", "labels"))
	if errs = append(errs, apivalidation.ValidateAnnotations(next.annotations, field.NewPath("metadata", "annotations"))...); len(errs) > 0 {
		return status.Invalid(w.c.Kind.GroupVersionKind().GroupKind(), w.item.entry.Name, errs)
	}
	w.next = next
	if w.creates {
		next.created, w.code = true, http.StatusCreated
	}
	return nil
}

// typed returns an error if a write makes the object one of another type, or if it has fields that the type does not have, or twice, and the
// option fieldValidation does not allow that. strict are the errors of strict decoding of the patch.
func (w *write) typed(after []byte, strict []error) error {
	c, want := w.c, w.c.Kind.GroupVersionKind()
	said := gjson.GetManyBytes(after, "apiVersion", "kind")
	if v := said[0].String(); v != "" && v != want.GroupVersion().String() {
		return call.OtherVersion(v, want.GroupVersion())
	}
	if k := said[1].String(); k != "" && k != want.Kind {
		return status.BadRequestf("%s in version %q cannot be handled as a %s: no kind %q is served at %s", k, want.Version, want.Kind, k, c.Info.Path)
	}
	unfit := func(err error) error { return call.Unfit(want, err) }
	found, err := kjson.UnmarshalStrict(after, reflect.New(w.v.kind.Type).Interface())
	if err != nil {
		return unfit(err)
	}
	// What the policy has is not the client's fault.
	there, err := kjson.UnmarshalStrict(w.there.JSON, reflect.New(w.v.kind.Type).Interface())
	if err != nil {
		return unfit(err)
	}
	for _, e := range found {
		if !slices.ContainsFunc(there, func(of error) bool { return of.Error() == e.Error() }) {
			strict = append(strict, e)
		}
	}
	return c.Heed(strict, unfit)
}

// conflicts returns an error if a write is about another object with the name, or about another version of the object.
func (w *write) conflicts(after []byte) error {
	said := gjson.GetManyBytes(after, "metadata.resourceVersion", "metadata.uid")
	if v, uid := said[0].String(), said[1].String(); v != "" && v != fmt.Sprint(w.there.Revision) || uid != "" && uid != w.there.UID {
		return status.Modified(w.c.Resource(), w.item.entry.Name)
	}
	return nil
}

// overlaid returns the overlay that a write leads to.
func (w *write) overlaid(after []byte, applied map[string]any) (*overlay, error) {
	var was, is struct{ Metadata metav1.ObjectMeta }
	for text, into := range map[*[]byte]any{&w.there.JSON: &was, &after: &is} {
		if err := json.Unmarshal(*text, into); err != nil {
			return nil, call.Unfit(w.c.Kind.GroupVersionKind(), err)
		}
	}
	is.Metadata.Name, is.Metadata.Namespace = was.Metadata.Name, was.Metadata.Namespace
	for _, meta := range []*metav1.ObjectMeta{&was.Metadata, &is.Metadata} { // no client manages these
		maps.DeleteFunc(meta.Annotations, ofPolicy)
	}
	old, fields, options := &policy.Object{Meta: &was.Metadata}, managed.Of(w.c.Kind, ""), &w.c.Body.Options
	if applied != nil {
		merged, err := fields.Apply(old, onlyMetadata(applied), options.FieldManager, options.Force, w.c.Received)
		if err != nil {
			return nil, err
		}
		if _, client := old.Meta.Annotations[lastApplied]; client && options.FieldManager == "kubectl" { // as the library, which has seen metadata only
			merged.Meta.Annotations[lastApplied] = lastAppliedOf(applied)
		}
		return w.item.overlay.written(w.item.entry, merged.Meta), nil
	}
	w.kept(&is.Metadata)
	updated := &policy.Object{Meta: &is.Metadata}
	if w.creates {
		old = nil // who creates an object manages it; before that, nobody does
	}
	if err := fields.Update(old, updated, options.FieldManager, w.c.Received); err != nil {
		return nil, status.BadRequest(err.Error())
	}
	return w.item.overlay.written(w.item.entry, updated.Meta), nil
}

// onlyMetadata returns the part of an applied configuration that an overlay can have.
func onlyMetadata(applied map[string]any) map[string]any {
	part := map[string]any{}
	for _, field := range []string{"apiVersion", "kind", "metadata"} {
		if value, ok := applied[field]; ok {
			part[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	if annotations, ok, _ := unstructured.NestedFieldNoCopy(part, "metadata", "annotations"); ok {
		if texts, ok := annotations.(map[string]any); ok {
			maps.DeleteFunc(texts, ofPolicy)
		}
	}
	return part
}

// lastAppliedOf returns the annotation in which `kubectl apply` keeps what it applied last, for a configuration that kubectl applies by the server.
func lastAppliedOf(applied map[string]any) string {
	o := unstructured.Unstructured{Object: runtime.DeepCopyJSON(applied)}
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", lastApplied)
	text, err := o.MarshalJSON()
	if err != nil {
		return "" // it has no kind, which was refused before
	}
	return string(text)
}

// kept gives metadata the labels and annotations that the policy gives the object, as far as a write has left them out. It warns of a label that an
// update or a patch would have removed.
func (w *write) kept(meta *metav1.ObjectMeta) {
	for _, key := range slices.Sorted(maps.Keys(w.item.entry.Labels)) {
		if _, ok := meta.Labels[key]; !ok && !w.creates && w.matches() {
			w.c.Warn(fmt.Sprintf("metadata.labels[%q] stays: %s defined by the policy%s", key, w.v.kind.Says, where(w.item.entry)))
		}
	}
	meta.Labels = laid(w.item.entry.Labels, meta.Labels)
	given := maps.Clone(w.item.entry.Annotations)
	maps.DeleteFunc(given, ofPolicy)
	meta.Annotations = laid(given, meta.Annotations)
}

// meant returns a label or an annotation that the write changes and that means something; "" if there is none.
func (w *write) meant(next *overlay) string {
	e := w.item.entry
	if w.v.kind.Meaning == nil {
		return ""
	}
	return w.v.kind.Meaning(w.c.Tip.Policy.Base().Form(), e.Labels, laid(e.Labels, next.labels))
}

// remove answers a delete. What the policy says stays in force; the overlay goes, and clients do not see the object any more.
func (w *write) remove() error {
	e := w.item.entry
	if !w.matches() || w.c.Info.Verb != "delete" {
		return w.refusal(e, e.Name, false, "")
	}
	if _, err := w.body(); err != nil {
		return err
	}
	if pre := w.c.Body.Delete.Preconditions; pre != nil {
		kind := schema.GroupResource{Group: w.c.Kind.Kind.Group, Resource: w.c.Kind.Kind.Kind.Kind} // sic, as upstream
		if pre.UID != nil && string(*pre.UID) != w.there.UID {
			return status.Conflict(kind, e.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *pre.UID, w.there.UID))
		}
		if now := fmt.Sprint(w.there.Revision); pre.ResourceVersion != nil && *pre.ResourceVersion != now {
			return status.Conflict(kind, e.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *pre.ResourceVersion, now))
		}
	}
	w.next = w.item.overlay.deleted()
	w.c.Warn(fmt.Sprintf("%s %q is not shown any more, and stays in force: %s defined by the policy%s", w.c.Resource(), e.Name, w.v.kind.Says, where(e)))
	return nil
}

// where returns where the rule of an object stands, for the end of a sentence.
func where(e *Entry) string {
	if e.Source.IsZero() {
		return ", and it is a part of every policy"
	}
	return " at " + e.Source.String()
}

// refusal returns the error of a write to the object of a rule, which is nil if there is none: 403 that names the line to edit, or how to
// add the object. differs is the field in which it differs from the
// policy; "" if that is not the reason.
func (w *write) refusal(e *Entry, name string, creates bool, differs string) error {
	c, k := w.c, w.v.kind
	says := k.Says + " defined by the policy"
	if differs != "" && w.matches() {
		says += ", and the request differs in " + differs
	}
	kept := ""
	if w.item != nil && w.item.overlay != nil && !w.matches() {
		kept = fmt.Sprintf("; what clients have written beside it can be removed while dynamic.%s of the bundle is %q", k.Section, policy.MatchWrites)
	}
	switch {
	case e == nil && creates:
		return status.Refused(c.Resource(), name, errors.New(says+", not through the API: add it to "+k.Part+" ("+bundleFile(c.Tip)+"), and push that; `"+k.imported()+"` writes it"))
	case e != nil && e.Builtin && e.Replaceable:
		return status.Refused(c.Resource(), name, errors.New(says+", and this is a part of every policy: add one with this name to "+k.Part+", which replaces it, and push that"+kept))
	case e != nil && e.Builtin:
		return status.Refused(c.Resource(), name, errors.New(says+", and this is a part of every policy"+kept))
	}
	where := "the package of " + bundleFile(c.Tip)
	if e != nil && !e.Source.IsZero() {
		where = e.Source.String()
	}
	hint := ""
	if e != nil && differs != "" && w.matches() {
		hint = e.Hint
	}
	return status.Refused(c.Resource(), name, errors.New(says+": change "+where+" and push it"+hint+kept))
}
