package plans_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"stele.dev/stele/policy/plan"
)

var plainSerializer = scheme.Codecs.WithoutConversion()

// stocked starts a server with ten databases of 50, 100, ... 500 GiB, and three pipelines.
func stocked(t testing.TB) server {
	t.Helper()
	s := start(t)
	for _, name := range []string{"shop", "shared"} {
		s.must(t, "admin", "POST", "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
	}
	for i := 1; i <= 10; i++ {
		s.must(t, "dana", "POST", databases, database(fmt.Sprintf("db-%02d", i), fmt.Sprintf(`,"storageGiB":%d,"password":"hunter%d"`, 50*i, i)))
	}
	for i := range 3 {
		s.must(t, "della", "POST", pipelines, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Pipeline","metadata":{"name":"pipe-%d"},"spec":{"steps":3}}`, i))
	}
	return s
}

const labelPatch = `{"metadata":{"labels":{"a":"b"}}}`

// about returns the finding about objects of a kind and a path, whichever rule it has.
func about(t *testing.T, p *plan.Plan, kind, path string) *plan.Finding {
	t.Helper()
	for i := range p.Findings {
		f := &p.Findings[i]
		if (f.Kind == kind || f.Kind == "") && f.Path == path && f.Objects != nil && f.Objects.Violating+f.Objects.Stuck+f.Objects.Differ > 0 {
			return f
		}
	}
	t.Fatalf("no finding with objects about %s in\n%s", path, show(p))
	return nil
}

const databaseKind, pipelineKind = "databases.data.corp.example", "pipelines.data.corp.example"

func names(o *plan.Objects) (all []string) {
	for _, s := range o.Samples {
		all = append(all, s.Namespace+"/"+s.Name)
	}
	return all
}

// TestABoundIsTightened is change set 1: what the plan says of stored objects is true once the policy is in force.
func TestABoundIsTightened(t *testing.T) {
	s := stocked(t)
	next := changed(t, "<=8192", "<=200")
	p := s.plan(t, "admin", next, map[string]any{"samples": 4})
	f := about(t, p, databaseKind, "spec.storageGiB")
	if o := f.Objects; f.Class != plan.Breaks || o.Violating != 6 || o.Stuck != 0 || o.StatusStuck != 0 || o.Of != 10 ||
		fmt.Sprint(names(o)) != "[shop/db-10 shop/db-09 shop/db-08 shop/db-07]" || string(o.Samples[0].Value) != "500" {
		t.Errorf("%s", show(p))
	}
	details := strings.Join(f.Details, "\n")
	for _, want := range []string{"can be changed elsewhere", "Restores of those", "to the bound: databases.data.corp.example/validations/grow (bundle.cue:"} {
		if !strings.Contains(details, want) {
			t.Errorf("%q is not in\n%s", want, details)
		}
	}
	if !reflect.DeepEqual(p.Checked, plan.Checked{Objects: 10, Of: 10}) || p.From.Revision == 0 || p.Revision == 0 {
		t.Errorf("%s", show(p))
	}

	s.Activate(t, next)
	for i := 1; i <= 10; i++ {
		at := fmt.Sprintf("%s/db-%02d", databases, i)
		s.must(t, "dana", "PATCH", at, labelPatch)
		again := database(fmt.Sprintf("new-%02d", i), fmt.Sprintf(`,"storageGiB":%d`, 50*i))
		if 50*i > 200 {
			s.refused(t, 422, "dana", "POST", databases, again)
			s.refused(t, 422, "dana", "PATCH", at, `{"spec":{"storageGiB":200}}`)
		} else {
			s.must(t, "dana", "POST", databases, again)
		}
	}
}

// TestAParameterIsChanged is change set 7: objects that a rule of admission refuses in every update are stuck.
func TestAParameterIsChanged(t *testing.T) {
	s := stocked(t)
	next := changed(t, "maxGiB: 500", "maxGiB: 300")
	p := s.plan(t, "admin", next, nil)
	var f *plan.Finding
	for i := range p.Findings {
		if x := &p.Findings[i]; x.Objects != nil && x.Objects.Stuck > 0 {
			f = x
		}
	}
	if f == nil || f.Class != plan.Breaks || f.Objects.Stuck != 4 || f.Objects.Violating != 4 || f.Objects.StatusStuck != 0 || f.Objects.Of != 10 || !f.Objects.Samples[0].Stuck {
		t.Fatalf("%s", show(p))
	}
	if details := strings.Join(f.Details, "\n"); !strings.Contains(details, "4 objects can be neither labelled nor changed") || !strings.Contains(details, "Status can be written") {
		t.Errorf("%s", details)
	}

	s.Activate(t, next)
	for i := 1; i <= 10; i++ {
		at := fmt.Sprintf("%s/db-%02d", databases, i)
		if 50*i > 300 {
			s.refused(t, 422, "dana", "PATCH", at, labelPatch)
		} else {
			s.must(t, "dana", "PATCH", at, labelPatch)
		}
		s.must(t, "dana", "PATCH", at+"/status", `{"status":{"phase":"ok"}}`)
	}
}

// TestAFieldIsRenamed is change set 2.
func TestAFieldIsRenamed(t *testing.T) {
	s := stocked(t)
	p := s.plan(t, "admin", changed(t, "owner!:", "contact!:"), nil)
	if f := about(t, p, databaseKind, "spec.contact"); f.Class != plan.Breaks || f.Objects.Violating != 10 || f.Objects.Stuck != 0 {
		t.Errorf("%s", show(p))
	}
	if f := about(t, p, databaseKind, "spec.owner"); f.Objects.Differ != 10 || string(f.Objects.Samples[0].Value) != `"dana@corp.example"` {
		t.Errorf("%s", show(p))
	}
}

// TestADefaultIsChanged is change set 6. Objects that were written with a value stay as they are.
func TestADefaultIsChanged(t *testing.T) {
	s := stocked(t)
	p := s.plan(t, "admin", changed(t, `*"dev" | "standard"`, `"dev" | *"standard"`, `*7`, `*14`), nil)
	for _, f := range p.Findings {
		if f.Objects != nil && (f.Objects.Differ > 0 || f.Objects.Violating > 0 || f.Objects.Stuck > 0) {
			t.Errorf("%s", show(p))
		}
	}
	if p.Checked.Objects != 10 {
		t.Errorf("%s", show(p))
	}
	// A new field with a default is in every object.
	p = s.plan(t, "admin", changed(t, "backup: keepDays", `size: *"small" | "large"
		backup: keepDays`), nil)
	if f := about(t, p, databaseKind, "spec.size"); f.Objects.Differ != 10 || f.Objects.Violating != 0 {
		t.Errorf("%s", show(p))
	}
}

// TestASecretOfThePolicyInForceIsNeverShown compares bundles in which the field is no secret.
func TestASecretOfThePolicyInForceIsNeverShown(t *testing.T) {
	s := stocked(t)
	public := changed(t, " @stele(sensitive)", "")
	for _, next := range []string{
		strings.Replace(public, "password?: string", `password?: =~"^x"`, 1),
		strings.Replace(public, "		password?: string\n", "", 1),
		strings.Replace(public, `admission: validate: limit: {`, `admission: validate: said: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			validations: x: {expression: "object.spec.password == 'x'", messageExpression: "object.spec.password"}
		}
		admission: validate: limit: {`, 1),
	} {
		p := s.plan(t, "admin", next, map[string]any{"from": map[string]any{"package": ".", "files": files(public)}, "replay": "7d"})
		if p.Checked.Objects != 10 || strings.Contains(show(p), "hunter") {
			t.Errorf("the plan shows a secret:\n%s", show(p))
		}
	}
}

// TestASecretIsNeverShown tightens a secret field: the plan counts objects, and shows no value.
func TestASecretIsNeverShown(t *testing.T) {
	s := stocked(t)
	for _, next := range []string{
		changed(t, "password?: string @stele(sensitive)", `password?: =~"^x" @stele(sensitive)`),
		changed(t, "password?: string @stele(sensitive)", `password?: =~"^x"`),
		changed(t, "		password?: string @stele(sensitive)\n", ""),
	} {
		p := s.plan(t, "admin", next, nil)
		if f := about(t, p, databaseKind, "spec.password"); f.Objects.Violating+f.Objects.Differ != 10 || len(f.Objects.Samples) != 3 {
			t.Errorf("%s", show(p))
		}
		if strings.Contains(show(p), "hunter") {
			t.Errorf("the plan shows a secret:\n%s", show(p))
		}
	}
}

// TestWhoMayNotListLearnsNothing asks for plans as a user who may list nothing: numbers of objects would tell what is in them, because a
// rule can ask for each letter.
func TestWhoMayNotListLearnsNothing(t *testing.T) {
	s := stocked(t)
	next := changed(t, "steps: int & >=1 & <=50", "steps: int & >=1 & <=2")
	public := changed(t, " @stele(sensitive)", "")
	first := s.plan(t, "admin", bundle, nil).From
	type sides struct {
		to   string
		from map[string]any
	}
	texts := map[string]map[string]bool{}
	for name, of := range map[string]func(letter string) sides{
		"a bound": func(n string) sides {
			return sides{changed(t, "steps: int & >=1 & <=50", "steps: int & >=1 & <="+n), nil}
		},
		"a secret": func(n string) sides {
			return sides{changed(t, "password?: string", `password?: !~"^hunter`+n+`$"`), nil}
		},
		"a secret of a bundle in which it is none": func(n string) sides {
			return sides{strings.Replace(public, "password?: string", `password?: !~"^hunter`+n+`$"`, 1), map[string]any{"package": ".", "files": files(public)}}
		},
		"a secret of a revision": func(n string) sides {
			return sides{changed(t, "password?: string", `password?: !~"^hunter`+n+`$"`), map[string]any{"revision": first.Revision}}
		},
		"a removed kind": func(n string) sides {
			return sides{bundle, map[string]any{"package": ".", "files": files(changed(t, "<=8192", "<=1"+n))}}
		},
	} {
		texts[name] = map[string]bool{}
		for _, n := range []string{"2", "4", "nothing"} {
			if n == "nothing" && (name == "a bound" || name == "a removed kind") {
				n = "49"
			}
			x := of(n)
			p := s.plan(t, "planner", x.to, map[string]any{"from": x.from, "replay": "7d"})
			if p.Checked.Objects != 0 || p.Checked.Of != 0 || len(p.Checked.NotTried) != 1 || len(p.Replay.Flips) != 0 || !strings.Contains(show(p), "What the change means for stored ones is not known") {
				t.Errorf("%s: %s", name, show(p))
			}
			for _, f := range p.Findings {
				if f.Objects != nil {
					t.Errorf("%s: %s", name, show(p))
				}
			}
			p.From, p.To, p.Findings = plan.Side{}, plan.Side{}, nil // which follow from what was sent
			p.Summary = plan.Summary{}
			texts[name][show(p)] = true
		}
		if len(texts[name]) != 1 {
			t.Errorf("%s: the answers differ: %v", name, texts[name])
		}
	}
	s.refused(t, 403, "dana", "POST", plansPath, request(next, nil))
	// The right to plan is not the right to push, nor to read what is pushed.
	push := strings.Replace(request(next, nil), `"kind":"Plan"`, `"kind":"Policy"`, 1)
	s.refused(t, 403, "planner", "POST", "/apis/policy.stele.dev/v1/policies", push)
	s.refused(t, 403, "planner", "POST", "/apis/policy.stele.dev/v1/policies?dryRun=All", push)
	s.refused(t, 403, "planner", "GET", databases, "")
}

// TestAReplayKeepsToTheWindowOfItsReader decides again only what the reader may read of the past.
func TestAReplayKeepsToTheWindowOfItsReader(t *testing.T) {
	for window, sees := range map[string]bool{"": true, `history: windows: "pipelines.data.corp.example": "0s"`: false} {
		s := start(t)
		edit := func(steps string) string {
			return changed(t, `cluster: "test"`, `cluster: "test"`+"\n\t"+window, "steps: int & >=1 & <=50", "steps: int & >=1 & <="+steps)
		}
		s.Activate(t, edit("50"))
		s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
		for i := range 3 {
			s.must(t, "della", "POST", pipelines, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Pipeline","metadata":{"name":"pipe-%d"},"spec":{"steps":3}}`, i))
		}
		for user, all := range map[string]bool{"lisa": sees, "pia": true} { // pia has all verbs on pipelines, also history
			p := s.plan(t, user, edit("2"), map[string]any{"replay": "7d"})
			if p.Checked.Objects != 3 || (len(p.Replay.Flips) > 0) != all || all == strings.Contains(strings.Join(p.Replay.Why, "\n"), "3: you may not list pipelines.data.corp.example") {
				t.Errorf("%s with %q: %s", user, window, show(p))
			}
		}
	}
}

// TestAKindIsRemoved is change set 5.
func TestAKindIsRemoved(t *testing.T) {
	s := stocked(t)
	from, to := strings.Index(bundle, `		kinds: "pipelines`), strings.Index(bundle, "		admission: validate")
	next := strings.ReplaceAll(bundle[:from]+bundle[to:], `resources: ["pipelines"]`, `resources: ["databases"]`)
	p := s.plan(t, "admin", next, nil)
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Rule == "KIND_REMOVED" && f.Kind == pipelineKind {
			details := strings.Join(f.Details, "\n")
			if f.Objects.Of != 3 || !strings.Contains(details, "3 objects in 1 namespace: shop 3.") || !strings.Contains(details, " by della.") {
				t.Errorf("%s", show(p))
			}
			return
		}
	}
	t.Errorf("%s", show(p))
}

// TestPlansOfOtherPolicies compares with a revision, a digest and a bundle, and with what is not there.
func TestPlansOfOtherPolicies(t *testing.T) {
	s := stocked(t)
	first := s.plan(t, "admin", bundle, nil)
	if first.From.Digest != first.To.Digest || len(first.Findings) != 0 {
		t.Errorf("%s", show(first))
	}
	next := changed(t, "<=8192", "<=200")
	s.Activate(t, next)
	for _, from := range []map[string]any{
		{"revision": first.From.Revision}, {"digest": first.From.Digest}, {"package": ".", "files": files(bundle)},
	} {
		p := s.plan(t, "admin", next, map[string]any{"from": from})
		if p.From.Digest != first.From.Digest {
			t.Errorf("from %v: %s", from, show(p))
		}
		if f := about(t, p, databaseKind, "spec.storageGiB"); f.Objects.Violating != 6 {
			t.Errorf("from %v: %s", from, show(p))
		}
	}
	without := s.plan(t, "admin", bundle, map[string]any{"objects": false})
	if without.Checked.Of != 0 || len(without.Notes) == 0 {
		t.Errorf("%s", show(without))
	}
	from := func(of map[string]any) string { return request(next, map[string]any{"from": of}) }
	s.refused(t, 404, "admin", "POST", plansPath, from(map[string]any{"digest": strings.Repeat("0", 64)}))
	s.refused(t, 410, "admin", "POST", plansPath, from(map[string]any{"revision": 1}))
	s.refused(t, 422, "admin", "POST", plansPath, from(map[string]any{}))
	s.refused(t, 422, "admin", "POST", plansPath, from(map[string]any{"revision": 1, "digest": "x"}))
	s.refused(t, 422, "admin", "POST", plansPath, request(next, map[string]any{"samples": -1}))
	s.refused(t, 422, "admin", "POST", plansPath, request(next, map[string]any{"replay": "soon"}))
	if _, err := s.send(t, "admin", "POST", plansPath, from(map[string]any{"revision": 100000})); err == nil {
		t.Error("a revision that does not exist")
	}
	// Both sides say where their mistakes are.
	broken := strings.Replace(bundle, "maxGiB: 500", "maxGiB: 500 & 600", 1)
	if said := s.refused(t, 422, "admin", "POST", plansPath, request(broken, nil)); !strings.Contains(said, "bundle.cue:") {
		t.Error(said)
	}
	if said := s.refused(t, 422, "admin", "POST", plansPath, from(map[string]any{"package": ".", "files": files(broken)})); !strings.Contains(said, "spec.from: ") || !strings.Contains(said, "bundle.cue:") {
		t.Error(said)
	}
}

// TestPlansAreDeterministic makes a plan again and again.
func TestPlansAreDeterministic(t *testing.T) {
	s := stocked(t)
	next := changed(t, "<=8192", "<=200", "maxGiB: 500", "maxGiB: 300", "owner!:", "contact!:")
	first := show(s.plan(t, "admin", next, nil))
	for range 10 {
		if again := show(s.plan(t, "admin", next, nil)); again != first {
			t.Fatalf("%s\nthen\n%s", first, again)
		}
	}
}

func show(p *plan.Plan) string {
	text, _ := json.MarshalIndent(p, "", " ")
	return string(text)
}
