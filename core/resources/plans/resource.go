package plans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/turns"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/policies"
)

// Group, Version, Plural and Kind name the API of plans. Creating one answers it; it is never stored.
const (
	Group   = activation.Group
	Version = activation.Version
	Plural  = "plans"
	Kind    = "Plan"
)

// Resource returns the discovery entry of plans.
func Resource() discovery.Resource {
	return discovery.NewResource(Group, Version, Kind, Plural, "create")
}

// ServiceOptions are the options of [New].
type ServiceOptions struct {
	Reader *read.Reader
	// Pushes compiles the policies, as those that are pushed.
	Pushes *activation.Service
	// Engine decides recorded requests.
	Engine decide.Engine
	// History has the recorded writes.
	History *history.Store
	// Decisions has the recorded refusals and reads of this replica.
	Decisions decisionsapi.Source
	// Others returns the names of the other replicas, whose refusals and reads are not in Decisions.
	Others func() []string
}

type service struct {
	ServiceOptions
	// making has one turn: a plan uses all processors.
	making turns.Turns
}

// New returns the virtual resource of plans.
func New(o ServiceOptions) *catalog.Resource {
	v := &service{o, make(turns.Turns, 1)}
	return &catalog.Resource{
		Resource: Resource(), Object: func() any { return Request{} }, Timeout: activation.PushTimeout, Past: catalog.AsToday,
		Memory: 16 << 20, Cost: activation.Cost, Serve: v.serve,
	}
}

var gvk = schema.GroupVersionKind{Group: Group, Version: Version, Kind: Kind}

// serve answers a plan.
func (v *service) serve(ctx context.Context, c *call.Call) error {
	f, err := negotiate.Plain(c.HTTP)
	if err != nil {
		return err
	}
	asked := &Request{}
	if err := v.Reader.DecodeBody(ctx, c, gvk, asked); err != nil {
		return err
	}
	asked.APIVersion, asked.Kind = gvk.ToAPIVersionAndKind()
	if errs := check(&asked.Spec); len(errs) > 0 {
		return status.Invalid(gvk.GroupKind(), "", errs)
	}
	made, err := v.plan(ctx, c, &asked.Spec)
	if err != nil {
		return err
	}
	answer := &Request{TypeMeta: asked.TypeMeta, Spec: Spec{Package: asked.Spec.Package, Files: []activation.File{}, Commit: asked.Spec.Commit}, Status: Status{Plan: made}}
	text, err := json.Marshal(answer) // without the files, which may be large
	if err != nil {
		return err
	}
	return c.WriteBody(f, http.StatusCreated, text)
}

// check returns the errors of a spec.
func check(s *Spec) (errs field.ErrorList) {
	at := field.NewPath("spec")
	errs = append(errs, activation.CheckFiles(at.Child("files"), s.Files)...)
	if s.Samples != nil && (*s.Samples < 0 || *s.Samples > maxSamples) {
		errs = append(errs, field.Invalid(at.Child("samples"), *s.Samples, fmt.Sprintf("must be from 0 to %d", maxSamples)))
	}
	if _, err := parseSpan(s.Replay); err != nil {
		errs = append(errs, field.Invalid(at.Child("replay"), s.Replay, err.Error()))
	}
	f := s.From
	if f == nil {
		return errs
	}
	at = at.Child("from")
	given := 0
	for _, is := range []bool{f.Revision != 0, f.Digest != "", len(f.Files) > 0} {
		if is {
			given++
		}
	}
	if given != 1 {
		return append(errs, field.Invalid(at, field.OmitValueType{}, "exactly one of revision, digest or files must be specified"))
	}
	if len(f.Files) > 0 {
		errs = append(errs, activation.CheckFiles(at.Child("files"), f.Files)...)
	}
	return errs
}

const (
	defaultSamples = 3
	maxSamples     = 1000
)

// plan makes the plan of a spec, at the confirmed tip of the call.
func (v *service) plan(ctx context.Context, c *call.Call, s *Spec) (*plan.Plan, error) {
	from, was, err := v.comparedPolicy(ctx, c, s.From)
	if err != nil {
		return nil, err
	}
	to, err := v.compile(ctx, c, &activation.Spec{Package: s.Package, Files: s.Files, Commit: s.Commit})
	if err != nil {
		return nil, err
	}
	done, err := v.making.TakeAside(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	o := Options{
		From: was, To: plan.Side{Commit: s.Commit, Changed: s.Changed}, Accept: s.Accept, Samples: defaultSamples, LastWrite: v.lastWrite(c), MayRead: v.Reader.Disclosure(c, "list").All, InForce: c.Tip.Policy, Engine: v.Engine,
	}
	if s.Samples != nil {
		o.Samples = *s.Samples
	}
	if s.Objects == nil || *s.Objects {
		o.Objects = tipSource{c.Tip}
	}
	span, err := parseSpan(s.Replay)
	if err != nil {
		return nil, err
	}
	complete := true
	if span > 0 {
		if o.Records, complete, err = newRecords(ctx, v.History, c.Tip, span); err != nil {
			return nil, err
		}
		if v.Decisions.Log != nil {
			if v.Decisions.Flush != nil {
				if err := v.Decisions.Flush(ctx); err != nil {
					return nil, err
				}
			}
			o.Decided = &decided{v.Decisions.Log, v.History, c.Tip.Time.Add(-span)}
		}
	}
	p, err := Make(ctx, plan.Sides{From: from, To: to}, o)
	if err != nil {
		return nil, err
	}
	p.Revision = c.Tip.Revision()
	if others := v.otherReplicas(); p.Replay != nil && o.Decided != nil && len(others) > 0 {
		p.Notes = append(p.Notes, "Refusals and reads of other servers were not decided again: "+strings.Join(others, ", ")+".")
	}
	if !complete && p.Replay != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("Writes before revision %d are not kept any more.", p.Replay.Since))
	}
	return p, nil
}

func (v *service) otherReplicas() []string {
	if v.Others == nil {
		return nil
	}
	return v.Others()
}

// comparedPolicy returns the policy to compare with: the one in force unless f says otherwise.
func (v *service) comparedPolicy(ctx context.Context, c *call.Call, f *From) (*policy.Policy, plan.Side, error) {
	switch {
	case f == nil:
		return c.Tip.Policy.Base(), sideOf(c.Tip.Policies.History[len(c.Tip.Policies.History)-1]), nil
	case len(f.Files) > 0:
		p, err := v.compile(ctx, c, &activation.Spec{Package: f.Package, Files: f.Files})
		return p, plan.Side{Commit: f.Commit}, inFrom(err)
	case f.Revision != 0:
		revision, err := v.Reader.AskedMoment(ctx, c, f.Revision, "")
		if err != nil {
			return nil, plan.Side{}, err
		}
		record, found := c.Tip.Policies.InForce(revision)
		if !found {
			return nil, plan.Side{}, status.Expired("no policy was in force at revision %d: the first is since revision %d", revision, c.Tip.Policies.History[0].Revision)
		}
		p, err := v.recall(ctx, c, record)
		return p, sideOf(record), err
	}
	records := c.Tip.Policies.History
	for _, r := range slices.Backward(records) {
		if r.Digest.String() == f.Digest {
			p, err := v.recall(ctx, c, r)
			return p, sideOf(r), err
		}
	}
	return nil, plan.Side{}, status.NotFound(schema.GroupResource{Group: activation.Group, Resource: activation.Plural}, f.Digest)
}

// recall returns the policy of an activation.
func (v *service) recall(ctx context.Context, c *call.Call, r policies.Record) (*policy.Policy, error) {
	p, err := v.Reader.Past.Policy(ctx, c.Tip, r.Revision)
	if err != nil && ctx.Err() == nil {
		v.Reader.Logger.Warn("a policy of the past cannot be read", "revision", r.Revision, "error", err)
		return nil, status.Expired("policy %.12s of revision %d cannot be read any more", r.Digest, r.Revision)
	}
	if err != nil || p == nil {
		return nil, err
	}
	return p.Base(), nil // plans are about bundles
}

func sideOf(r policies.Record) plan.Side { return plan.Side{Revision: r.Revision, Commit: r.Commit} }

func (v *service) compile(ctx context.Context, c *call.Call, s *activation.Spec) (*policy.Policy, error) {
	return Compile(ctx, v.Reader, v.Pushes, c, s)
}

// Compile compiles and loads a policy that is not in force. Errors of the bundle are a Status with their lines.
func Compile(ctx context.Context, rd *read.Reader, pushes *activation.Service, c *call.Call, s *activation.Spec) (*policy.Policy, error) {
	compiled, err := pushes.CompileSpec(ctx, c, s)
	if err != nil {
		return nil, err
	}
	return rd.Committer.Load(activation.Proposal(compiled, s.Commit))
}

// inFrom says of a Status that it is about the policy to compare with.
func inFrom(err error) error {
	var of *status.Error
	if !errors.As(err, &of) {
		return err
	}
	about := *of
	about.ErrStatus.Message = "spec.from: " + about.ErrStatus.Message
	return &about
}
