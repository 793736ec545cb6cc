package plans

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/resources/plans/past"
	"stele.dev/stele/core/write/validity"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/schemas/program"
)

// judge decides recorded writes under a policy. It is safe for concurrent use.
type judge struct {
	policy  *policy.Policy // without its outside authorizers
	outside bool           // the policy has some
	records Records
	benches map[schema.GroupResource]*bench
	past    *past.Objects // nil if rules read no stored objects, or if those are not known
}

func newJudge(p *policy.Policy, records Records) *judge {
	j := &judge{policy: Unasked(p), outside: len(p.Form().Outside()) > 0, records: records, benches: map[schema.GroupResource]*bench{}}
	for _, k := range j.policy.Kinds() {
		if k.Of == nil {
			j.benches[k.GroupResource()] = newBench(j.policy, k, nil)
		}
	}
	return j
}

// A verdict is how a policy decides a write.
type verdict struct {
	// unknown says why it cannot be told; else the rest holds.
	unknown string
	// stage is the stage that refuses it; empty if none does.
	stage string
	failure
	// made is the write, with what rules of mutate made of its object; nil if it is refused.
	made *write
}

// Reasons why a write cannot be decided again.
const (
	isErased     = "its object, or the object that it replaced, has been erased"
	isOutside    = "an authorizer outside of the policy may decide it"
	isScale      = "a rule of mutate sees a Scale"
	isNoScale    = "its Scale cannot be shown: a field of it has another type"
	isConverted  = "the versions of its kind have different schemas"
	isUnlike     = "the policy that allowed it refuses it when it is decided again"
	isSecret     = "its kind has secrets, and you may not list it in all namespaces"
	isStored     = "a rule of admission reads stored objects that you may not list in all namespaces, or that are not kept"
	isUnreadable = "its path or its body cannot be read"
	isOptionless = "a rule reads the options of a delete whose body was not recorded"
	isFinalize   = "a condition or a rule of admission sees the finalizers of a namespace"
	isForgotten  = "its namespace of that time is not kept"
)

// write is a recorded write, prepared for one policy.
type write struct {
	*Record
	request  *logpb.Request
	access   policy.Request
	bench    *bench
	version  *policy.Version // of the path
	next     *policy.Object  // nil for a delete
	old      *policy.Object  // nil for a create
	deletes  bool
	asked    bool // next is what the client sent, and not the result of the write
	unread   bool // a rule asked for options that are not known
	applied  []admission.Applied
	pendings []*policy.Pending
}

// decide decides a write again. An error means that it could not be tried.
func (j *judge) decide(ctx context.Context, r *Record) (verdict, error) {
	w := &write{Record: r, request: r.Meta.GetRequest()}
	if r.Payload == nil || r.Previous != 0 && r.Before == nil {
		return verdict{unknown: isErased}, nil
	}
	if !w.readAccess() {
		return verdict{unknown: isUnreadable}, nil
	}
	if v := j.authorize(ctx, w); v.stage != "" || v.unknown != "" {
		return v, nil
	}
	at := placeOf(r.Object).GroupResource
	w.bench, w.version = j.benches[at], j.policy.Version(schema.GroupVersionResource{Group: w.access.Group, Version: w.access.Version, Resource: w.access.Resource})
	if w.bench == nil || w.version == nil || !w.version.Serves(w.access.Subresource) {
		return verdict{stage: "authorization", failure: failure{message: "it is not served any more"}}, nil
	}
	if w.bench.version.Kind.Converts() {
		return verdict{unknown: isConverted}, nil
	}
	if unknown, err := w.readObjects(); unknown != "" || err != nil {
		return verdict{unknown: unknown}, err
	}
	return j.judge(ctx, w)
}

// readAccess reads who asked for what.
func (w *write) readAccess() bool {
	methods := map[string]string{"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete, "deletecollection": http.MethodDelete}
	target, err := url.ParseRequestURI(call.WithoutMoment(w.request.GetUri()))
	if err != nil {
		return false
	}
	info, err := call.RequestInfo(&http.Request{Method: methods[w.request.GetVerb()], URL: target})
	if err != nil || !info.IsResourceRequest {
		return false
	}
	actor := w.Meta.GetActor()
	w.access = policy.Request{
		User: actor.GetUser(), UID: actor.GetUid(), Groups: actor.GetGroups(), Verb: w.request.GetVerb(), IsResource: true,
		Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name, Path: info.Path,
	}
	for _, x := range actor.GetExtra() {
		if w.access.Extra == nil {
			w.access.Extra = map[string][]string{}
		}
		w.access.Extra[x.GetKey()] = x.GetValues()
	}
	if info.Verb == "deletecollection" {
		w.access.Selectors = policy.ParseSelectors(info.FieldSelector, info.LabelSelector)
	}
	w.deletes = w.access.Verb == "delete" || w.access.Verb == "deletecollection"
	return true
}

// requests returns what has to be authorized: the request, the delete of an object of a collection, and the create by an
// update.
func (w *write) requests() []policy.Request {
	all := []policy.Request{w.access}
	if w.access.Verb == "deletecollection" {
		named := w.access
		named.Name = w.Object.GetName()
		return append(all, named)
	}
	if w.Previous == 0 && w.access.Verb != "create" {
		create := w.access
		create.Verb = "create"
		return append(all, create)
	}
	return all
}

// authorize decides as the stage authorization does. What depends on the object is left pending.
func (j *judge) authorize(ctx context.Context, w *write) verdict {
	for _, r := range w.requests() {
		d := j.policy.Authorize(ctx, &r)
		switch {
		case d.Allowed:
		case d.Pending != nil:
			w.pendings = append(w.pendings, d.Pending)
		case !d.Denied && j.outside:
			return verdict{unknown: isOutside}
		default:
			return verdict{stage: "authorization", failure: refusal(d)}
		}
	}
	return verdict{}
}

func refusal(d *policy.Decision) failure {
	f := failure{rule: d.Rule, source: d.Source, message: d.Reason}
	if f.message == "" {
		f.message = "nothing grants it"
	}
	return f
}

// readObjects decodes the object that was asked for, and the one that it replaced. unknown says why they cannot be
// told.
func (w *write) readObjects() (unknown string, err error) {
	if w.Before != nil {
		text, err := w.bench.stored(w.Before)
		if err != nil {
			return "", err
		}
		if w.old, err = decode(text); err != nil {
			return isUnreadable, nil
		}
	}
	if w.deletes {
		if w.old == nil {
			return isErased, nil
		}
		return "", nil
	}
	payload, err := decode(shownIn(w.bench.version, w.Payload))
	if err != nil {
		return isUnreadable, nil
	}
	w.next = payload
	switch verb := w.access.Verb; {
	case verb == "patch" && w.refused():
		if w.access.Subresource == "scale" || !w.askedAgain(payload) {
			return isPatch, nil
		}
	case w.wasChanged() && (verb == "patch" || w.access.Subresource == "status"):
		if (w.access.Subresource == "" || w.access.Subresource == "status") && !w.askedAgain(payload) {
			return isChanged, nil
		}
	case w.access.Subresource == "status" && w.old != nil:
		w.next = &policy.Object{Meta: payload.Meta, Content: admission.WithStatus(w.old.Content, payload.Content)}
	case w.Request != nil && w.access.Subresource == "" && (verb == "create" || verb == "update") && w.version.Kind == w.bench.version.Kind:
		content, ok := w.body()
		if !ok {
			return isUnreadable, nil
		}
		w.next.Content, w.asked = content, true
		w.asksMetadata()
	}
	if w.bench.version.Status && w.access.Subresource == "" {
		var before map[string]any
		if w.old != nil {
			before = w.old.Content
		}
		w.next.Content = admission.WithStatus(w.next.Content, before)
	}
	return "", nil
}

// shownIn returns a payload in the version in which objects are stored.
func shownIn(v *policy.Version, payload []byte) []byte {
	return versions.VersionOf(v.GroupVersionKind().GroupVersion()).Of(payload)
}

// body returns the content of the recorded body.
func (w *write) body() (content map[string]any, ok bool) {
	text, err := w.bodyJSON()
	if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(text, &content) != nil || content == nil {
		return nil, false
	}
	_, _, err = metadata.Decode(content) // leaves the rest
	return content, err == nil
}

// bodyJSON returns the recorded body as JSON.
func (w *write) bodyJSON() ([]byte, error) {
	if w.mediaType() == negotiate.YAML {
		return yaml.YAMLToJSON(w.Request)
	}
	return w.Request, nil
}

// options returns the options of the request as admission rules see them. A delete has them in its body, which may not have been
// recorded if it was not refused.
func (w *write) options() (options map[string]any) {
	var err error
	switch {
	case !w.deletes:
		options, err = call.OptionsOfWrite(w.query(), w.fieldManager(), w.operation() == policy.Create)
	case len(w.Request) > 0:
		options, err = call.OptionsOfDelete(w.Request)
	case w.refused():
		options, err = call.OptionsOfDeleteQuery(w.query())
	}
	if err != nil || options == nil {
		w.unread = true
		return nil
	}
	return options
}

// operation returns what the write is to admission rules.
func (w *write) operation() policy.Operation {
	switch {
	case w.deletes:
		return policy.Delete
	case w.old == nil:
		return policy.Create
	}
	return policy.Update
}

// judge decides as the stages mutation, schema, conditions and validation do.
func (j *judge) judge(ctx context.Context, w *write) (v verdict, err error) {
	rules, operation := admission.MustOf(j.policy), w.operation()
	if w.access.Subresource == call.Finalize && (len(w.pendings) > 0 || rules.Validates(w.version, call.Finalize, operation) || len(rules.Mutations(w.version, call.Finalize, operation)) > 0) {
		return verdict{unknown: isFinalize}, nil
	}
	if w.next != nil {
		v, err = j.mutate(ctx, w, operation)
	}
	if err == nil && v.unknown == "" && v.stage == "" {
		v, err = j.admit(ctx, w)
	}
	switch {
	case errors.Is(err, history.ErrForgotten):
		return verdict{unknown: isForgotten}, nil
	case err == nil && w.unread:
		return verdict{unknown: isOptionless}, nil
	case err == nil && v.unknown == "" && v.stage == "":
		v.made = w
	}
	return v, err
}

// admit decides as the stages schema, conditions and validation do.
func (j *judge) admit(ctx context.Context, w *write) (verdict, error) {
	sub, operation := w.access.Subresource, w.operation()
	if w.next != nil {
		f, err := w.check(ctx)
		if err != nil || f != nil {
			if f == nil {
				f = &failure{}
			}
			return verdict{stage: "schema", failure: *f}, err
		}
	}
	if len(w.pendings) == 0 && !admission.MustOf(j.policy).Validates(w.version, sub, operation) {
		return verdict{}, nil
	}
	next, err := w.seen(w.next)
	if err != nil {
		return verdict{unknown: isNoScale}, nil
	}
	old, err := w.seen(w.old)
	if err != nil {
		return verdict{unknown: isNoScale}, nil
	}
	for _, p := range w.pendings {
		if d := p.Decide(ctx, w.version, next, old); !d.Allowed {
			if !d.Denied && j.outside {
				return verdict{unknown: isOutside}, nil
			}
			return verdict{stage: "conditions", failure: refusal(d)}, nil
		}
	}
	if !admission.MustOf(j.policy).Validates(w.version, sub, operation) {
		return verdict{}, nil
	}
	var failed error
	a := &admission.Attributes{Request: &w.access, Operation: operation, Options: w.options, Object: next, Old: old, Stored: w.states.Reader(j.past, w.Object), Namespace: func() *policy.Object {
		o, err := j.namespace(ctx, w)
		failed = err
		return o
	}}
	refused := refusals(admission.MustOf(j.policy).Validate(ctx, w.version, a))
	if failed != nil || len(refused) == 0 {
		if len(a.Undecided) > 0 {
			return verdict{unknown: isStored}, failed
		}
		return verdict{}, failed
	}
	slices.SortFunc(refused, func(a, b failure) int { return strings.Compare(a.rule, b.rule) })
	return verdict{stage: "validation", failure: refused[0]}, context.Cause(ctx)
}

// seen returns an object as conditions and rules see it: in the version of the path, or as a Scale. The error says why it has no Scale.
func (w *write) seen(o *policy.Object) (*policy.Object, error) {
	if o == nil {
		return nil, nil
	}
	if w.version.Kind != w.bench.version.Kind {
		o = &policy.Object{Meta: o.Meta, Content: w.bench.version.Kind.Convert(o.Content, w.version.Kind)}
	}
	if w.access.Subresource != "scale" {
		return o, nil
	}
	scale, _, err := w.version.Scale.Scaled(o.Meta, o.Content)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scale)
	return &policy.Object{Meta: &scale.ObjectMeta, Content: content}, err
}

// check returns the first error of the stage schema, by its path.
func (w *write) check(ctx context.Context) (*failure, error) {
	v := w.bench.version
	var before map[string]any
	if w.old != nil {
		before = w.old.Content
	}
	w.next.Content = copyOf(w.next.Content)
	if _, _, err := validity.Prepare(v, w.next.Content, before, false); err != nil {
		return nil, err
	}
	meta := w.next.Meta
	if w.old != nil {
		meta = meta.DeepCopy()
		meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds = w.old.Meta.DeletionTimestamp, w.old.Meta.DeletionGracePeriodSeconds
	}
	checked := validity.Write{Version: v, Subresource: w.access.Subresource, Object: &policy.Object{Meta: meta, Content: w.next.Content}, Old: w.old}
	errs, err := checked.Check(ctx)
	if err != nil {
		return &failure{message: err.Error(), fault: field.ErrorTypeTypeInvalid}, nil
	}
	if program.Retryable(errs) {
		return nil, errs.ToAggregate()
	}
	var first *failure
	for _, e := range errs {
		f := w.bench.failure(e)
		f.message = e.Detail // without the value
		if f.message == "" {
			f.message = string(e.Type)
		}
		if e.Detail != validity.Unchecked && (first == nil || strings.Compare(f.path+" "+f.rule, first.path+" "+first.rule) < 0) {
			first = &f
		}
	}
	return first, nil
}

// namespace returns the namespace of a write, as it was then.
func (j *judge) namespace(ctx context.Context, w *write) (*policy.Object, error) {
	name := w.Object.GetNamespace()
	if name == "" {
		return nil, nil
	}
	text, err := j.records.Namespace(ctx, name, w.Revision)
	if err != nil || text == nil {
		return nil, err
	}
	o, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return o, nil
}
