package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"stele.dev/stele/core/conformance/testdata/fixtures"
	"stele.dev/stele/policy/plan"
)

var replayed = flag.Uint64("conformance.replayed", 6, "how many streams are decided again")

// A policy beside itself gives no flips: the requests of the streams are recorded, and a plan decides them again under the policy that
// decided them. With and without admission policies it decides each of them as it was decided.
func TestReplayedStreamsGiveNoFlips(t *testing.T) {
	imported := imports(t, policies(t, "validating.yaml", "mutating.yaml"))
	ruled := map[string][]byte{}
	for _, f := range imported.Files {
		ruled[f.Path] = f.Data
	}
	for name, files := range map[string]map[string][]byte{"without policies": nil, "with policies": ruled} {
		t.Run(name, func(t *testing.T) {
			p := startStele(t, files)
			for seed := *from; seed < *from+*replayed; seed++ {
				p.begin(t)
				s := newStream(seed, p)
				for range *length {
					p.send(t, s.next())
				}
				p.clear(t)
			}
			checkReplay(t, p.planOf(t, files))
			if files == nil { // the replay does see what the policies would change
				if r := p.planOf(t, ruled).Replay; len(r.Flips)+len(r.Alterations) == 0 {
					t.Errorf("the policies change nothing: %+v", r)
				}
			}
		})
	}
}

// planOf returns the plan of a bundle, with a replay of all that was recorded.
func (p *peer) planOf(t *testing.T, files map[string][]byte) *plan.Plan {
	t.Helper()
	bundle := []map[string]string{}
	for path, f := range fixtures.Files(definitions(t), files) {
		bundle = append(bundle, map[string]string{"path": path, "data": string(f.Data)})
	}
	asked := encode(map[string]any{"apiVersion": "policy.stele.dev/v1", "kind": "Plan", "spec": map[string]any{"package": ".", "files": bundle, "replay": "1d", "objects": false}})
	a := p.must(t, http.StatusCreated, "POST", "/apis/policy.stele.dev/v1/plans", asked)
	var answer struct{ Status struct{ Plan *plan.Plan } }
	if err := json.Unmarshal(encode(a.body), &answer); err != nil || answer.Status.Plan == nil {
		t.Fatalf("%v: %v", err, a.body)
	}
	return answer.Status.Plan
}

func checkReplay(t *testing.T, made *plan.Plan) {
	t.Helper()
	r := made.Replay
	if r == nil || made.From.Digest != made.To.Digest {
		t.Fatalf("no replay under the same policy: %+v", made)
	}
	for _, why := range r.Why {
		if strings.Contains(why, "when it is decided again") {
			t.Errorf("%s", why)
		}
	}
	if len(r.Flips)+len(r.Alterations) > 0 || r.Writes < 100 || r.Refusals < 10 {
		t.Errorf("%d writes and %d refusals: %s", r.Writes, r.Refusals, fmt.Sprint(r.Flips, r.Alterations))
	}
	t.Logf("%d writes, %d refusals, undecided %q", r.Writes, r.Refusals, r.Why)
}
