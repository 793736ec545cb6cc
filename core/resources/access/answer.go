package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/turns"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/projections/policies"
)

// service answers access reviews and access differences.
type service struct {
	*read.Reader
	// turns limits the questions that are answered at once: their cost grows with the number of rules and their overlaps.
	turns turns.Turns
}

// New returns the virtual resources of access reviews and access differences.
func New(rd *read.Reader) []*catalog.Resource {
	v := &service{rd, turns.New()}
	return []*catalog.Resource{
		{Resource: ReviewResource(), Object: func() any { return Review{} }, Cost: estimate, Serve: v.serve(question{version.WithKind(ReviewKind)}, v.whoCan)},
		{Resource: DifferenceResource(), Object: func() any { return Difference{} }, Cost: estimate, Serve: v.serve(question{version.WithKind(DifferenceKind)}, v.difference)},
	}
}

var version = schema.GroupVersion{Group: Group, Version: Version}

// estimate returns the time of an answer. It grows with the rules of the policy and their overlaps, and is bounded by
// [rights.ErrIntricate].
func estimate(*call.Call) time.Duration { return 5 * time.Millisecond }

// question is a kind of question. A client creates an object of it to get an answer; the object is not stored.
type question struct{ schema.GroupVersionKind }

// serve returns a handler that answers a question with the result of answer.
func (v *service) serve(q question, answer func(context.Context, *call.Call, question) (any, error)) func(context.Context, *call.Call) error {
	return func(ctx context.Context, c *call.Call) error {
		f, err := negotiate.Plain(c.HTTP)
		if err != nil {
			return err
		}
		x, err := answer(ctx, c, q)
		if err != nil {
			return err
		}
		return c.WriteJSON(f, http.StatusCreated, x)
	}
}

// invalid returns the error for a question with invalid fields.
func (q question) invalid(errs ...*field.Error) error {
	return status.Invalid(q.GroupKind(), "", errs)
}

// tooMuch converts [rights.ErrIntricate], which means that the answer would take too long, to a Status. It returns other
// errors unchanged.
func (q question) tooMuch(err error) error {
	if errors.Is(err, rights.ErrIntricate) {
		return q.invalid(field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error()))
	}
	return err
}

// policyRights is a policy that was in force, with its access rules.
type policyRights struct {
	*past.Rights
	State
	// at is the index in the changes of access of the tip.
	at int
}

// rightsAt returns the policy in force at a revision or a time.
func (v *service) rightsAt(ctx context.Context, c *call.Call, revision uint64, at string) (*policyRights, error) {
	revision, err := v.AskedMoment(ctx, c, revision, at)
	if err != nil {
		return nil, err
	}
	history := c.Tip.Policies.AccessChanges()
	n := sort.Search(len(history), func(i int) bool { return history[i].Revision > revision })
	if n == 0 {
		return nil, status.Expired("no policy was in force at revision %d: the first is since revision %d", revision, history[0].Revision)
	}
	l := &policyRights{at: n - 1}
	in := history[l.at]
	l.State = State{Revision: revision, Policy: in.Digest.String(), PolicyRevision: in.Revision}
	l.Rights, err = v.Past.Rights(ctx, c.Tip, in)
	return l, err
}

// whoCan answers an access review: the subjects that may do something, and since when.
func (v *service) whoCan(ctx context.Context, c *call.Call, kind question) (any, error) {
	review := &Review{}
	if err := v.DecodeBody(ctx, c, kind.GroupVersionKind, review); err != nil {
		return nil, err
	}
	review.APIVersion, review.Kind = kind.ToAPIVersionAndKind()
	s := &review.Spec
	if errs := checkWhoCan(s); len(errs) > 0 {
		return nil, kind.invalid(errs...)
	}
	done, err := v.turns.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	inForce, err := v.rightsAt(ctx, c, s.Revision, s.Time)
	if err != nil {
		return nil, kind.tooMuch(err)
	}
	if s.Path == "" {
		resource := s.Resource
		if s.Subresource != "" {
			resource += "/" + s.Subresource
		}
		if has, hint := inForce.Served.Find(s.Group, resource); !has {
			text := fmt.Sprintf("the policy in force at revision %d has no such resource in the group %q", inForce.Revision, s.Group)
			if hint != "" {
				text += ": " + hint
			}
			return nil, kind.invalid(field.Invalid(field.NewPath("spec", "resource"), resource, text))
		}
	}
	q := rights.Question{Verb: s.Verb, Path: s.Path, Group: s.Group, Resource: s.Resource, Subresource: s.Subresource, Name: s.Name, Namespace: s.Namespace, AnyNamespace: s.AnyNamespace}
	if q.Group == "" && q.Resource == "namespaces" && q.Namespace == "" && !q.AnyNamespace {
		q.Namespace = q.Name // as in a request for a namespace
	}
	found := inForce.WhoCan(&q)
	review.Status = ReviewStatus{State: inForce.State, Authorizers: inForce.Chain(), Holders: []Holder{}, Denies: found.Denies, Outsiders: found.Outsiders}
	if review.Status.GrantorsUnknown = inForce.Limits == nil; !review.Status.GrantorsUnknown {
		review.Status.Grantors = inForce.Limits.Grantors(&q)
	}
	for _, h := range found.Holders {
		review.Status.Holders = append(review.Status.Holders, Holder{Holder: h})
	}
	return review, v.setSince(ctx, c, inForce, review.Status.Holders)
}

// checkWhoCan returns the errors in the spec of an access review.
func checkWhoCan(s *ReviewSpec) (errs field.ErrorList) {
	at := field.NewPath("spec")
	if s.Verb == "" {
		errs = append(errs, field.Required(at.Child("verb"), ""))
	}
	if strings.ToLower(s.Verb) != s.Verb {
		errs = append(errs, field.Invalid(at.Child("verb"), s.Verb, "must be in lower case"))
	}
	if (s.Resource == "") == (s.Path == "") {
		errs = append(errs, field.Invalid(at.Child("resource"), s.Resource, "exactly one of resource or path must be specified"))
	}
	if s.Path != "" {
		if !strings.HasPrefix(s.Path, "/") {
			errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must begin with /"))
		}
		for _, x := range []struct{ name, value string }{{"group", s.Group}, {"subresource", s.Subresource}, {"name", s.Name}, {"namespace", s.Namespace}} {
			if x.value != "" {
				errs = append(errs, field.Forbidden(at.Child(x.name), "a path has none"))
			}
		}
	}
	if s.AnyNamespace && s.Namespace != "" {
		errs = append(errs, field.Forbidden(at.Child("namespace"), "may not be given together with anyNamespace"))
	}
	if strings.Contains(s.Resource, "/") {
		errs = append(errs, field.Invalid(at.Child("resource"), s.Resource, "must be a segment of a path; a subresource has a field of its own"))
	}
	return append(errs, oneMoment(at, s.Revision, s.Time)...)
}

func oneMoment(at *field.Path, revision uint64, time string) (errs field.ErrorList) {
	if revision != 0 && time != "" {
		errs = append(errs, field.Forbidden(at.Child("time"), "may not be given together with a revision"))
	}
	return errs
}

// activationsAsked is the largest number of activations that since examines.
const activationsAsked = 64

// setSince sets since when each holder has the access. It goes back from activation to activation until no holder had the
// access.
func (v *service) setSince(ctx context.Context, c *call.Call, inForce *policyRights, holders []Holder) error {
	history := c.Tip.Policies.AccessChanges()[:inForce.at+1]
	open := []int{}
	for i := range holders {
		if !holders[i].Denied {
			open = append(open, i)
		}
	}
	end := func(i int, at policies.Record, atLeast bool) error {
		t, err := v.Past.Time(ctx, at.Revision)
		holders[i].Since = &Since{Revision: at.Revision, Time: t.UTC().Format(time.RFC3339Nano), Policy: at.Digest.String(), Actor: at.Actor, AtLeast: atLeast}
		return err
	}
	at := inForce.at
	stopped := false
	for ; at > 0 && len(open) > 0; at-- {
		if stopped = inForce.at-at >= activationsAsked; stopped {
			break
		}
		then, err := v.Past.Rights(ctx, c.Tip, history[at-1])
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if stopped = err != nil; stopped { // the policy is no longer in the log
			v.Logger.Warn("a policy of the past cannot be read", "revision", history[at-1].Revision, "error", err)
			break
		}
		still, kept := open[:0], inForce.Rights.Against(then.Rights)
		for _, i := range open {
			held, err := kept.Held(ctx, &holders[i].Holder)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err == nil && held {
				still = append(still, i)
				continue
			}
			if err := end(i, history[at], err != nil); err != nil {
				return err
			}
		}
		open = still
	}
	for _, i := range open {
		if err := end(i, history[at], stopped); err != nil {
			return err
		}
	}
	return nil
}

// difference answers an access difference: the subjects that gained or lost access.
func (v *service) difference(ctx context.Context, c *call.Call, kind question) (any, error) {
	d := &Difference{}
	if err := v.DecodeBody(ctx, c, kind.GroupVersionKind, d); err != nil {
		return nil, err
	}
	d.APIVersion, d.Kind = kind.ToAPIVersionAndKind()
	var errs field.ErrorList
	at := field.NewPath("spec")
	for i, s := range d.Spec.Subjects {
		if (s.User == "") == (s.Group == "") {
			errs = append(errs, field.Invalid(at.Child("subjects").Index(i), s, "exactly one of user or group must be specified"))
		}
	}
	sides := []struct {
		at    *field.Path
		spec  *Side
		state *State
	}{{at.Child("from"), &d.Spec.From, &d.Status.From}, {at.Child("to"), &d.Spec.To, &d.Status.To}}
	done, err := v.turns.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var both [2]*rights.Rights
	for i, side := range sides {
		errs = append(errs, oneMoment(side.at, side.spec.Revision, side.spec.Time)...)
		if side.spec.Access == nil {
			continue
		}
		if side.spec.Revision != 0 || side.spec.Time != "" {
			errs = append(errs, field.Forbidden(side.at.Child("access"), "may not be given together with a revision or a time"))
		}
		var err error
		if both[i], err = rights.New(side.spec.Access); err != nil {
			errs = append(errs, field.Invalid(side.at.Child("access"), field.OmitValueType{}, err.Error()))
		}
		side.spec.Access = nil // the answer does not repeat it
	}
	if len(errs) > 0 {
		return nil, kind.invalid(errs...)
	}
	for i, side := range sides {
		if both[i] != nil {
			continue
		}
		inForce, err := v.rightsAt(ctx, c, side.spec.Revision, side.spec.Time)
		if err != nil {
			return nil, kind.tooMuch(err)
		}
		both[i], *side.state = inForce.Rights.Rights, inForce.State
	}
	selection := rights.Selection{Subjects: d.Spec.Subjects, AnyNamespace: d.Spec.Namespace == nil}
	if d.Spec.Namespace != nil {
		selection.Namespace = *d.Spec.Namespace
	}
	d.Status.Chain = rights.ChainDifference(both[0], both[1])
	if d.Status.Changes, err = rights.Difference(ctx, both[0], both[1], selection); err != nil {
		return nil, kind.tooMuch(err)
	}
	if d.Status.Changes == nil {
		d.Status.Changes = []rights.AccessChange{}
	}
	return d, nil
}
