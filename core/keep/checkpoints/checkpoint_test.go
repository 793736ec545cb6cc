package checkpoints_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// commitOptions are those of a committer beside the replica, on the same log.
func commitOptions(t testing.TB, store *memlog.Store) commit.Options {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return commit.Options{Log: log, Objects: objects.New(0), Load: func(p *policies.Proposal) (*policy.Policy, error) { return planetest.Load(p.Form.Bytes()) }}
}

// replayed returns what a start makes of the log, given a folder of checkpoints.
func replayed(t testing.TB, store *memlog.Store, folder *checkpoint.Folder) *commit.Committer {
	t.Helper()
	c := commit.New(commitOptions(t, store))
	if err := checkpoints.Load(t.Context(), folder, c, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := c.Replay(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func openFolder(t testing.TB) *checkpoint.Folder {
	t.Helper()
	folder, err := checkpoint.Open(t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// asMemory is a tip in a form that can be compared.
func asMemory(t testing.TB, c *commit.Committer, log eventlog.Reader) map[string]any {
	t.Helper()
	tip := c.Tip()
	info, err := checkpoint.HashOf(tip.Save)
	if err != nil {
		t.Fatal(err)
	}
	is := map[string]any{
		"fold": info, "head": tip.Head, "time": tip.Time.UnixNano(), "activated": tip.Activated.UnixNano(), "epoch": tip.EpochStart,
		"clocks": fmt.Sprint(tip.ClockSets), "policy": tip.Policy.DigestString(), "objects": tip.Objects.Revision,
	}
	red := objects.Select("", nil, fields.ParseSelectorOrDie("spec.color=red"))
	for _, r := range []schema.GroupResource{planetest.WidgetsResource, {Group: "example.com", Resource: "plains"}, {Resource: "secrets"}, {Resource: "namespaces"}} {
		for o := range tip.Objects.List(r, &objects.Selection{}, "", "") {
			is[fmt.Sprint(r, o.Namespace, "/", o.Name)] = fmt.Sprint(string(o.JSON), o.Revision, o.UID, string(o.Kept()), o.Secret(), red.Matches(o))
		}
	}
	for i, r := range tip.Policies.History {
		proposal, err := tip.Policies.Recall(t.Context(), log, r)
		if err != nil {
			t.Fatal(err)
		}
		is[fmt.Sprint("activation ", i)] = fmt.Sprint(r, proposal.Form.Digest(), len(proposal.Sources), proposal.Commit)
	}
	return is
}

// A start from any checkpoint, followed by the rest of the log, is equal to a replay of the whole log.
func TestAStartFromACheckpointEqualsAReplay(t *testing.T) {
	sensitive := strings.Replace(planetest.Bundle, "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1)
	seeds := uint64(6)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			var store memlog.Store
			p := planetest.StartReplica(t, store.Open(nil), 0)
			p.Bootstrap(t, planetest.Bundle)
			folders := []*checkpoint.Folder{}
			for range 120 {
				name := fmt.Sprint("w", rng.IntN(12))
				switch rng.IntN(12) {
				case 0:
					next := planetest.Compile(t, planetest.Pick(rng, planetest.Bundle, planetest.Graded, planetest.Regraded, planetest.Colorless, sensitive))
					_, _ = activation.ActivateCompiled(t.Context(), p.Committer, next, "test") // unless it is in force
				case 1:
					p.Do("DELETE", planetest.WidgetsPath+"/"+name, "")
				case 2:
					p.Do("POST", "/api/v1/namespaces/default/secrets", fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q},"stringData":{"a":"b"}}`, name))
				case 3:
					p.Do("POST", "/apis/example.com/v1/plains", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"a":"é\u0001"}}}`, name))
				case 4:
					p.Do("PATCH", planetest.WidgetsPath+"/"+name, `{"spec":{"color":"red","size":2},"metadata":{"labels":{"x":"y"}}}`, "Content-Type", "application/merge-patch+json")
				case 5:
					folder := openFolder(t)
					tip := p.Committer.Tip()
					if _, err := folder.Write(t.Context(), tip.Revision(), 0, tip.Save); err != nil {
						t.Fatal(err)
					}
					folders = append(folders, folder)
				case 6:
					if tip := p.Committer.Tip(); rng.IntN(3) == 0 {
						if _, _, err := p.Log.StartEpoch(t.Context(), tip.Head, tip.Revision()+1, tip.Revision()+10); err != nil {
							t.Fatal(err)
						}
						if _, err := p.Committer.Settle(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				default:
					p.Do("POST", planetest.WidgetsPath, planetest.Widget(name, 1+rng.IntN(9)))
				}
			}
			want := asMemory(t, replayed(t, &store, openFolder(t)), p.Log)
			if live := asMemory(t, p.Committer, p.Log); !reflect.DeepEqual(want, live) {
				t.Errorf("the replica that wrote differs from a replay (-replay +live):\n%s", cmp.Diff(want, live))
			}
			for _, folder := range folders {
				c := replayed(t, &store, folder)
				if c.Restored().Revision == 0 {
					t.Fatal("the checkpoint was not used")
				}
				if started := asMemory(t, c, p.Log); !reflect.DeepEqual(want, started) {
					t.Errorf("a start from revision %d differs from a replay (-replay +start):\n%s", c.Restored().Revision, cmp.Diff(want, started))
				}
				if live, started := p.Committer.Tip().Policies, c.Tip().Policies; !reflect.DeepEqual(live, started) {
					t.Errorf("policies (-live +start):\n%s", cmp.Diff(live, started, cmp.AllowUnexported(policies.State{})))
				}
			}
		})
	}
}

// A verification builds the objects from a checkpoint or from the whole log, and finds what is served.
func TestWhatIsServedIsVerified(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Bundle)
	verify := func() {
		t.Helper()
		a := p.Must(t, 200, "GET", "/log/verify?projection=objects", "")
		results, _ := a.Field("results").([]any)
		if len(results) != 1 {
			t.Fatal(a)
		}
		r, _ := results[0].(map[string]any)
		if r["live"] != r["rebuilt"] || r["live"] == "" || r["error"] != nil || fmt.Sprint(r["revision"]) != fmt.Sprint(p.Committer.Tip().Revision()) {
			t.Errorf("%s", a)
		}
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	verify()
	p.Activate(t, planetest.Graded)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	verify()
	p.Must(t, 400, "GET", "/log/verify?projection=other", "")
	p.Must(t, 403, "GET", "/log/verify", "", "Authorization", "Bearer nobody-token")
}
