package plans

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/resources/plans/past"
	"stele.dev/stele/core/write/validity"
	"stele.dev/stele/policy"
)

// judge decides recorded requests under a policy. It is safe for concurrent use.
type judge struct {
	engine  decide.Engine
	policy  *policy.Policy // without its outside authorizers
	records Records
	decided Decided // nil if only writes are decided
	benches map[schema.GroupResource]*bench
	past    *past.Objects   // nil if rules read no stored objects, or if those are not known
	asked   *policy.Policy  // whose webhooks and plugins may have been asked about recorded requests: the one in force
	alike   map[string]bool // the webhooks and plugins, by ID, that both policies have with one configuration
	spaces  sync.Map        // of *space: *objects.State
}

func newJudge(p, asked *policy.Policy, o *Options) *judge {
	j := &judge{engine: o.Engine, policy: decide.Unasked(p), asked: asked, records: o.Records, decided: o.Decided, benches: map[schema.GroupResource]*bench{}, alike: alike(asked.Form(), p.Form())}
	for _, k := range j.policy.Kinds() {
		if k.Of == nil {
			j.benches[k.GroupResource()] = newBench(j.policy, k, nil)
		}
	}
	return j
}

// A verdict is how a policy decides a request.
type verdict struct {
	// unknown says why it cannot be told; else the rest holds.
	unknown string
	// stage is the stage that refuses it; empty if none does.
	stage string
	failure
	// made is the write that the policy allows; nil for a delete, and for other requests.
	made *decide.Written
}

// decide decides a recorded request again. q is its question. An error means that it could not be tried.
func (j *judge) decide(ctx context.Context, r *Record, q *decide.Question) (verdict, error) {
	if q == nil {
		return verdict{unknown: isUnreadable}, nil
	}
	asked := *q
	if r.refusal == nil {
		asked.Recorded = r.written()
	} else {
		asked.Recorded = r.refused()
	}
	asked.Recorded.Objects = func(ctx context.Context, v *policy.Version) (*decide.State, error) { return j.met(ctx, r, v) }
	is := j.engine(ctx, &asked, j.policy)
	patches := r.refusal != nil && r.Meta.GetRequest().GetVerb() == "patch"
	switch {
	case is.Err != nil:
		return verdict{}, is.Err
	case ctx.Err() != nil:
		return verdict{}, context.Cause(ctx)
	case is.Unknown == decide.Outside:
		return verdict{unknown: isOutside}, nil
	case is.Unknown != "":
		return verdict{unknown: is.Unknown}, nil
	case patches && (is.Stage == "decode" || is.Unmet):
		return verdict{unknown: isPatch}, nil
	}
	v := verdict{made: is.Written}
	if is.Stage != "" {
		v = verdict{stage: is.Stage, failure: j.failure(r, &is)}
	}
	return j.reviewed(r, &is, v), nil
}

// failure returns why a policy refuses a recorded request.
func (j *judge) failure(r *Record, is *decide.Verdict) failure {
	switch is.Stage {
	case "authorization", "conditions":
		if is.Access != nil {
			return refusal(is.Access)
		}
		return failure{message: "it is not served any more"}
	case "schema":
		if b := j.benches[placeOf(r.Object).GroupResource]; b != nil {
			return b.firstFailure(is)
		}
	case "mutation", "validation":
		message := is.Message
		for _, what := range []string{" (rule ", " (mutation "} {
			message = strings.TrimSuffix(message, what+is.Rule+")")
		}
		return failure{rule: is.Rule, source: is.Source, message: message, admission: true}
	}
	return failure{rule: is.Rule, source: is.Source, message: is.Message}
}

func refusal(d *policy.Decision) failure {
	f := failure{rule: d.Rule, source: d.Source, message: d.Reason}
	f.message = cmp.Or(f.message, "nothing grants it")
	return f
}

// firstFailure returns the first invalid field of a refusal, by its path and its rule. Its message is without the value.
func (b *bench) firstFailure(is *decide.Verdict) failure {
	if len(is.Faults) == 0 {
		return failure{message: is.Message, fault: field.ErrorTypeTypeInvalid}
	}
	all := make([]failure, 0, len(is.Faults))
	for _, e := range is.Faults {
		if e.Detail == validity.Unchecked {
			continue
		}
		f := b.failure(e)
		if f.message = e.Detail; f.message == "" {
			f.message = string(e.Type)
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return failure{message: is.Message}
	}
	return slices.MinFunc(all, func(a, b failure) int { return strings.Compare(a.path+" "+a.rule, b.path+" "+b.rule) })
}

// errNoEngine says that recorded requests cannot be decided again without an engine.
var errNoEngine = errors.New("recorded requests need an engine that decides them")
