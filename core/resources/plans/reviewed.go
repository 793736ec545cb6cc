package plans

import (
	"bytes"
	"reflect"
	"slices"

	"stele.dev/stele/core/decide"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// reviewed returns the verdict about a recorded request, given that of the rules of the policy alone. Nobody asks the webhooks and plugins of
// the policy again. What one of them answered then counts if the policy asks it the same about the same object; otherwise the request
// cannot be decided.
func (j *judge) reviewed(r *Record, is *decide.Verdict, v verdict) verdict {
	for _, x := range is.Reviewers {
		if v.stage != "" && !x.Mutating {
			continue // it is asked after all rules, and can only refuse, too
		}
		refused := r.refusedBy(x)
		switch {
		case !j.asksAlike(r, x, is):
			return verdict{unknown: decide.Reviewed + ": " + x.ID}
		case refused && v.stage == "":
			d := r.Meta.GetDecision()
			v = verdict{stage: d.GetStage(), failure: failure{rule: d.GetRule(), source: d.GetSource(), message: d.GetMessage(), admission: true}}
		case !refused && !r.allowedBy(x):
			return verdict{unknown: decide.Reviewed + ": " + x.ID}
		}
	}
	return v
}

// asksAlike reports whether the policy asks a reviewer what the policy in force asked it about a recorded request: the same configuration,
// about the same object.
func (j *judge) asksAlike(r *Record, x *policy.Reviewer, is *decide.Verdict) bool {
	digest, own := j.asked.Digest(), j.policy.Digest()
	if !bytes.Equal(r.Meta.GetPolicyDigest(), digest[:]) {
		return false // its configuration of then is not known
	}
	if own == digest {
		return true // the same request under the same policy
	}
	if is.Mutated || len(r.Meta.GetDecisions().GetMutations()) > 0 {
		return false
	}
	at := placeOf(r.Object).GroupResource
	was, now := j.asked.Kind(at), j.policy.Kind(at)
	return j.alike[x.ID] && was != nil && now != nil && was.SameForm(now.Kind)
}

// alike returns the reviewers, by ID, that two policies have with one configuration, apart from where it stands.
func alike(a, b *policy.Form) map[string]bool {
	same := func(a, b any) bool { return reflect.DeepEqual(plan.Plain(a), plan.Plain(b)) }
	ids := map[string]bool{}
	for _, x := range a.Reviewers {
		i := slices.IndexFunc(b.Reviewers, func(y policy.Reviewer) bool { return y.ID == x.ID })
		ids[x.ID] = i >= 0 && same(x, b.Reviewers[i]) && (x.Plugin == "" || same(a.Plugin(x.Plugin), b.Plugin(x.Plugin)))
	}
	return ids
}

// refusedBy reports whether a reviewer refused the recorded request.
func (r *Record) refusedBy(x *policy.Reviewer) bool {
	return r.refusal != nil && wasRefused(r.refusal) && r.Meta.GetDecision().GetRule() == x.ID
}

// allowedBy reports whether a reviewer allowed the recorded request. One that could not be asked allowed nothing, whatever its failure policy.
func (r *Record) allowedBy(x *policy.Reviewer) bool {
	return slices.ContainsFunc(r.Meta.GetDecisions().GetReviews(), func(v *logpb.Review) bool { return v.GetRule() == x.ID && !v.GetIgnored() })
}
