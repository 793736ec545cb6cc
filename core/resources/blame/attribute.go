package blame

import (
	"context"
	"encoding/hex"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

var blameKind = schema.GroupVersionKind{Group: Group, Version: Version, Kind: "Blame"}

// service answers blames.
type service struct{ *read.Reader }

// New returns the virtual resource of blames.
func New(rd *read.Reader) *catalog.Resource {
	return &catalog.Resource{Resource: Resource(), Object: func() any { return Blame{} }, Memory: 4 << 20, Cost: estimate, Serve: (&service{rd}).serve}
}

// estimate returns the time of a blame. It reads the versions of an object until all fields are attributed: each takes
// about 50 microseconds, and how many there are is not known yet.
func estimate(*call.Call) time.Duration { return 2 * time.Millisecond }

// serve answers with the origin of each field of an object.
func (v *service) serve(ctx context.Context, r *call.Call) error {
	f, err := negotiate.Plain(r.HTTP)
	if err != nil {
		return err
	}
	b := &Blame{}
	if err := v.DecodeBody(ctx, r, blameKind, b); err != nil {
		return err
	}
	b.APIVersion, b.Kind = blameKind.ToAPIVersionAndKind()
	x, err := v.find(ctx, r, &b.Spec)
	if err != nil {
		return err
	}
	b.Status = Status{UID: x.object.UID, Revision: x.revision, ObjectRevision: x.object.Revision}
	if b.Status.Fields, err = x.fields(ctx); err != nil {
		return err
	}
	return r.WriteJSON(f, http.StatusCreated, b)
}

// blamed is the object of a blame, and the fields that are attributed so far. It is for one request.
type blamed struct {
	*service
	r        *call.Call
	revision uint64
	resource schema.GroupResource // the resource that stores the object
	name     string
	in       string // namespace
	kind     *policy.Kind
	access   policy.Request // the permission to get the object
	windows  *read.Windows
	object   *objects.Object

	found []Field
	asked *Asked // the fields that the request of the current change set; nil until it is read
}

// find returns the object of a blame at its revision, if the user may get it.
func (v *service) find(ctx context.Context, r *call.Call, spec *Spec) (*blamed, error) {
	var errs field.ErrorList
	at := field.NewPath("spec")
	for _, required := range []struct{ name, value string }{{"resource", spec.Resource}, {"name", spec.Name}} {
		if required.value == "" {
			errs = append(errs, field.Required(at.Child(required.name), ""))
		}
	}
	if spec.Revision != 0 && spec.Time != "" {
		errs = append(errs, field.Forbidden(at.Child("time"), "may not be given together with a revision"))
	}
	if len(errs) > 0 {
		return nil, status.Invalid(blameKind.GroupKind(), "", errs)
	}
	x := &blamed{service: v, r: r, name: spec.Name, in: spec.Namespace, windows: v.Windows(r)}
	var err error
	if x.revision, err = v.AskedMoment(ctx, r, spec.Revision, spec.Time); err != nil {
		return nil, err
	}
	x.access = policy.Request{
		User: r.User.GetName(), UID: r.User.GetUID(), Groups: r.User.GetGroups(), Extra: r.User.GetExtra(),
		Verb: "get", IsResource: true, Group: spec.Group, Version: spec.Version, Resource: spec.Resource, Namespace: spec.Namespace, Name: spec.Name,
	}
	if spec.Group == "" && spec.Resource == "namespaces" && spec.Namespace == "" {
		x.access.Namespace = spec.Name // as in a request to get the namespace
	}
	if d := r.Tip.Policy.Authorize(ctx, &x.access); !d.Allowed {
		return nil, status.Forbidden(&x.access, d)
	}
	asked := schema.GroupResource{Group: spec.Group, Resource: spec.Resource}
	inForce, err := x.policyAt(ctx, x.revision)
	if err != nil {
		return nil, err
	}
	if x.kind = inForce.Kind(asked); x.kind == nil {
		x.kind = r.Tip.Policy.Kind(asked)
	}
	if x.kind == nil || spec.Version != "" && !slices.ContainsFunc(x.kind.Versions, func(v *policy.Version) bool { return v.Name == spec.Version }) {
		return nil, status.NotServed("get", asked)
	}
	if x.kind.Namespaced != (spec.Namespace != "") {
		wrong := field.Required(at.Child("namespace"), x.kind.Resource()+" are in namespaces")
		if !x.kind.Namespaced {
			wrong = field.Forbidden(at.Child("namespace"), x.kind.Resource()+" are in no namespace")
		}
		return nil, status.Invalid(blameKind.GroupKind(), "", field.ErrorList{wrong})
	}
	if err := x.windows.Reach(ctx, x.kind, x.access, x.revision); err != nil {
		return nil, err
	}
	x.kind = x.kind.Stored()
	x.resource = x.kind.GroupResource()
	x.object, err = v.Past.Object(ctx, r.Tip, x.resource, x.in, x.name, x.revision)
	if err == nil && x.object == nil {
		err = status.NotFound(asked, x.name)
	}
	return x, err
}

// policyAt returns the policy that was in force at a revision.
func (x *blamed) policyAt(ctx context.Context, revision uint64) (*policy.Policy, error) {
	tip := x.r.Tip
	if in, found := tip.Policies.InForce(revision); found && in.Digest == tip.Policies.Active.Digest {
		return tip.Policy, nil
	}
	then, err := x.Past.Tip(ctx, tip, revision)
	if err != nil {
		return nil, err
	}
	return then.Policy, nil
}

// kindAt returns the kind of the object at a revision. If the policy of that time lacks it, it returns the current one.
func (x *blamed) kindAt(ctx context.Context, revision uint64) (*policy.Kind, error) {
	inForce, err := x.policyAt(ctx, revision)
	if err != nil {
		return nil, err
	}
	if kind := inForce.Kind(x.resource); kind != nil {
		return kind, nil
	}
	return x.kind, nil
}

// cause is what gave the object a state: a change of the object, or the activation of a policy that rendered it
// differently.
type cause struct {
	*history.Change
	activation *policies.Record
	state      map[string]any
}

func (c *cause) revision() uint64 {
	if c.activation != nil {
		return c.activation.Revision
	}
	return c.Revision
}

// fields returns all fields of the object with the change that set them. It goes back from the newest state.
func (x *blamed) fields(ctx context.Context) ([]Field, error) {
	shown, err := read.DecodePayload(x.object.JSON)
	if err != nil {
		return nil, err
	}
	fold := NewFold(shown, x.kind.Storage().Schema)
	x.found = make([]Field, fold.Left())
	if err := x.History.Reach(ctx, x.revision); err != nil {
		return nil, err
	}
	var newer *cause
	for c, err := range x.causes(ctx) {
		if err != nil {
			return nil, err
		}
		if c.state == nil { // the state is no longer kept
			newer = nil
			break
		}
		if newer != nil {
			if err := x.attribute(ctx, fold.Older(c.state), newer); err != nil {
				return nil, err
			}
		}
		if newer = c; fold.Left() == 0 {
			return x.found, nil
		}
		// A state before the window only shows which fields of the next state are older.
		allowed, err := x.windows.Allowed(ctx, x.kind, x.access, c.revision())
		if err != nil {
			return nil, err
		}
		if !allowed {
			newer = nil
			break
		}
	}
	if newer != nil && newer.activation == nil && newer.Previous != 0 { // what is before it is no longer kept
		newer = nil
	}
	return x.found, x.attribute(ctx, fold.Older(nil), newer)
}

// causes yields the causes of the object's states, newest first, back to its creation.
func (x *blamed) causes(ctx context.Context) func(func(*cause, error) bool) {
	return func(yield func(*cause, error) bool) {
		end := x.revision
		x.windows.Replay = x.Replays.Begin()
		for h, err := range x.windows.Replay.Through(ctx, x.History.Versions(ctx, x.resource, x.in, x.name, x.revision)) {
			if err != nil {
				yield(nil, err)
				return
			}
			written, err := read.DecodePayload(h.Payload)
			if err != nil {
				yield(nil, err)
				return
			}
			if written == nil { // no longer kept, and neither is how it was shown
				yield(&cause{Change: h}, nil)
				return
			}
			for c, err := range x.renderings(ctx, h, written, end) {
				if !yield(c, err) || err != nil {
					return
				}
			}
			if !yield(&cause{Change: h, state: written}, nil) || h.Previous == 0 {
				return
			}
			end = h.Revision - 1
		}
	}
}

// renderings yields the activations after a version was written, up to a revision, newest first. It yields none if the
// version was shown at that revision as it was written.
func (x *blamed) renderings(ctx context.Context, h *history.Change, written map[string]any, end uint64) func(func(*cause, error) bool) {
	return func(yield func(*cause, error) bool) {
		activations := x.activations(h.Revision, end)
		if len(activations) == 0 {
			return
		}
		last, err := x.shownAt(ctx, end)
		if err != nil {
			yield(nil, err)
			return
		}
		if len(difference.Between(written, last, difference.Options{})) == 0 {
			return
		}
		for i := range slices.Backward(activations) {
			state, err := x.shownAt(ctx, activations[i].Revision)
			if !yield(&cause{Change: h, activation: &activations[i], state: state}, err) || err != nil {
				return
			}
		}
	}
}

// shownAt returns the object as it was shown at a revision, nil if it did not exist.
func (x *blamed) shownAt(ctx context.Context, revision uint64) (map[string]any, error) {
	o, err := x.Past.Object(ctx, x.r.Tip, x.resource, x.in, x.name, revision)
	if err != nil || o == nil {
		return nil, err
	}
	return read.DecodePayload(o.JSON)
}

// activations returns the activations after a revision, up to another revision.
func (x *blamed) activations(after, upto uint64) []policies.Record {
	all := x.r.Tip.Policies.History
	upTo := func(revision uint64) int {
		return sort.Search(len(all), func(i int) bool { return all[i].Revision > revision })
	}
	from, to := upTo(after), upTo(upto)
	return all[from:max(from, to)]
}

// attribute records the cause of the leaves' values. A nil cause means that the values are older than the window.
func (x *blamed) attribute(ctx context.Context, leaves []Leaf, by *cause) error {
	if len(leaves) == 0 {
		return nil
	}
	x.asked = nil
	for _, leaf := range leaves {
		f := &x.found[leaf.Order]
		f.Path, f.Value = leaf.Path().String(), leaf.Value
		var err error
		switch {
		case by == nil:
			f.Type, f.Note = Earlier, BeforeWindow
		case by.activation != nil:
			err = x.rendered(ctx, f, &leaf, by)
		default:
			err = x.written(ctx, f, &leaf, by)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byServer are the fields that no request can set.
var byServer = []string{"metadata.uid", "metadata.creationTimestamp", "metadata.generation"}

// written attributes a field to a change.
func (x *blamed) written(ctx context.Context, f *Field, leaf *Leaf, by *cause) error {
	f.Revision, f.Time = by.Revision, by.Time.Format(time.RFC3339Nano)
	f.Policy = hex.EncodeToString(by.Meta.GetPolicyDigest())
	if slices.Contains(byServer, f.Path) {
		f.Type, f.Note = Server, ByServer
		return nil
	}
	f.Type = Updated
	if by.Previous == 0 {
		f.Type = Created
	}
	request := by.Meta.GetRequest()
	f.Actor, f.Impersonator = by.Meta.GetActor().GetUser(), by.Meta.GetActor().GetImpersonator().GetUser()
	f.FieldManager, f.Verb, f.Subresource = request.GetFieldManager(), request.GetVerb(), request.GetSubresource()
	then := leaf.Then()
	for _, m := range slices.Backward(by.Meta.GetDecisions().GetMutations()) {
		if mutates(m, then) {
			f.Type, f.Rule, f.Source = Mutated, m.GetRule(), m.GetSource()
			return nil
		}
	}
	if by.Request == nil || then[0].Field == "metadata" {
		return nil // defaults do not set metadata
	}
	kind, err := x.kindAt(ctx, by.Revision)
	if err != nil {
		return err
	}
	if x.asked == nil {
		x.asked = ReadAsked(request.GetMediaType(), by.Change.Request)
	}
	content := kind.Storage().Schema
	if x.asked.For(then, by.state, content) {
		return nil
	}
	if source, found := Default(content, then, leaf.Value); found {
		f.Type, f.Rule, f.Source = Defaulted, kind.Resource(), source.String()
	}
	return nil
}

// mutates reports whether a mutation set a field, or something that has the field.
func mutates(m *logpb.Mutation, p difference.Path) bool {
	return slices.ContainsFunc(m.GetPaths(), func(pointer string) bool {
		_, below := restBehind(pointer, p)
		return below && strings.Count(pointer, "/") <= len(p)
	})
}

// rendered attributes a field to an activation.
func (x *blamed) rendered(ctx context.Context, f *Field, leaf *Leaf, by *cause) error {
	a := by.activation
	at, err := x.History.Time(ctx, a.Revision)
	if err != nil {
		return err
	}
	f.Type, f.Revision, f.Time, f.Actor, f.Policy = Rendered, a.Revision, at.Format(time.RFC3339Nano), a.Actor, a.Digest.String()
	kind, err := x.kindAt(ctx, a.Revision)
	if err != nil {
		return err
	}
	f.Rule = kind.Resource()
	if source, found := Default(kind.Storage().Schema, leaf.Then(), leaf.Value); found {
		f.Source = source.String()
	}
	return nil
}
