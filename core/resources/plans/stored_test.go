package plans_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
)

// reading are rules that every database has an owner of its own and a new name, and every pipeline a database.
const reading = `
		admission: validate: "own-owner": {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			objects: databases: {kind: "databases.data.corp.example", version: "v1"}
			validations: owner: {expression: "!objects.databases.where('spec.owner', object.spec.owner).others().exists()", message: "another database has the owner"}
		}
		admission: validate: "new-name": {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE"]}
			objects: databases: {kind: "databases.data.corp.example", version: "v1"}
			validations: name: {expression: "!objects.databases.name(object.metadata.name).exists() && !objects.databases.get('shop', object.metadata.name).hasValue()", message: "there is one of this name"}
		}
		admission: validate: "for-database": {
			match: {apiGroups: ["data.corp.example"], resources: ["pipelines"]}
			objects: databases: {kind: "databases.data.corp.example", version: "v1"}
			validations: database: {expression: "objects.databases.get('shop', object.metadata.name.replace('pipe', 'db')).hasValue()", message: "there is no database for it"}
		}
		rbac: {`

// versioned is where the bundle has the version of databases.
const versioned = "versions: v1: {\n\t\t\t\t#schema: #Database\n"

// The plan tries stored objects with rules that read other objects, on the state at its revision and as the new policy shows it.
func TestRulesOverOtherObjectsAreTried(t *testing.T) {
	s := start(t)
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	for name, owner := range map[string]string{"db-1": "a", "db-2": "b", "db-3": "b", "db-4": "c"} {
		s.must(t, "dana", "POST", databases, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":%q},"spec":{"owner":"%s@corp.example"}}`, name, owner))
	}
	for _, name := range []string{"pipe-1", "pipe-7"} {
		s.must(t, "della", "POST", pipelines, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Pipeline","metadata":{"name":%q},"spec":{"steps":3}}`, name))
	}
	next := changed(t, versioned, "index: [\".spec.owner\"]\n\t\t\t"+versioned, "\n\t\trbac: {", reading,
		`owner!: =~"^[a-z.]+@corp\\.example$"`, "owner!: =~\"^[a-z.]+@corp\\\\.example$\"\n\t\tshown: string | *\"x\"")
	p := s.plan(t, "admin", next, map[string]any{"samples": 5})
	found := map[string]string{}
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Objects != nil && f.Objects.Violating+f.Objects.Stuck > 0 {
			of := names(f.Objects)
			slices.Sort(of)
			found[f.Path] = fmt.Sprintf("%d of %d, %d stuck: %s", f.Objects.Violating, f.Objects.Of, f.Objects.Stuck, strings.Join(of, " "))
		}
	}
	want := map[string]string{
		"data/validate/own-owner":    "2 of 4, 2 stuck: shop/db-2 shop/db-3",
		"data/validate/for-database": "1 of 2, 1 stuck: shop/pipe-7",
	}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v in\n%s", found, want, show(p))
	}

	p = s.plan(t, "pia", next, nil)
	for i := range p.Findings {
		if f := &p.Findings[i]; strings.HasPrefix(f.Path, "data/validate/") && f.Objects != nil && f.Objects.Violating > 0 {
			t.Errorf("pia may not list databases, and the plan counts %s\n%s", f.Path, show(p))
		}
	}
	if !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "databases.data.corp.example") }) {
		t.Errorf("the plan does not say that rules were left out: %q", p.Notes)
	}
}

// A replay decides writes with what rules read on the state before each of them, not on that of today.
func TestReplayedRulesReadTheStateOfThen(t *testing.T) {
	indexed := changed(t, versioned, "index: [\".spec.owner\"]\n\t\t\t"+versioned)
	next := strings.Replace(indexed, "\n\t\trbac: {", reading, 1)
	s := start(t)
	s.Activate(t, indexed)
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	create := func(name, owner string) {
		s.must(t, "dana", "POST", databases, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":%q},"spec":{"owner":"%s@corp.example"}}`, name, owner))
	}
	pipe := func(name string) {
		s.must(t, "della", "POST", pipelines, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Pipeline","metadata":{"name":%q},"spec":{"steps":3}}`, name))
	}
	pipe("pipe-1") // there is no database for it yet
	create("db-1", "a")
	create("db-2", "b")
	pipe("pipe-2")
	create("db-3", "a")                                                           // db-1 has the owner
	s.must(t, "dana", "PATCH", databases+"/db-2", `{"spec":{"tier":"standard"}}`) // nobody else has it
	for _, name := range []string{"db-1", "db-3", "db-2"} {
		s.must(t, "dana", "DELETE", databases+"/"+name, "")
	}
	create("db-4", "a")                                                      // nobody has it any more
	create("db-1", "c")                                                      // the name is free again
	s.must(t, "della", "PATCH", pipelines+"/pipe-2", `{"spec":{"steps":4}}`) // its database is gone
	s.must(t, "della", "PATCH", pipelines+"/pipe-1", `{"spec":{"steps":4}}`)

	p := s.plan(t, "admin", next, week)
	if f := flip(t, p, "dana", "create", "validation"); f.Count != 1 || f.Rule != "data/validate/own-owner/owner" {
		t.Errorf("%s", show(p))
	}
	for _, verb := range []string{"create", "patch"} {
		if f := flip(t, p, "della", verb, "validation"); f.Count != 1 || f.Rule != "data/validate/for-database/database" {
			t.Errorf("%s", show(p))
		}
	}
	if len(p.Replay.Flips) != 3 || p.Replay.Undecided != 0 || p.Replay.Writes != 14 {
		t.Errorf("%s", show(p))
	}
	// A user who may not list databases does not learn from writes of pipelines which databases there were.
	p = s.plan(t, "pia", next, week)
	if why := strings.Join(p.Replay.Why, "\n"); len(p.Replay.Flips) != 0 || !strings.Contains(why, "4: a rule of admission reads stored objects that you may not list") {
		t.Errorf("%s", show(p))
	}
	// The rules that were in force refuse nothing that they allowed.
	s.Activate(t, next)
	create("db-5", "e")
	if p = s.plan(t, "admin", strings.Replace(next, "maxGiB: 500", "maxGiB: 499", 1), week); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
}

// A replay of the last day knows what there was before.
func TestReplayedRulesReadWhatWasThereBefore(t *testing.T) {
	indexed := changed(t, versioned, "index: [\".spec.owner\"]\n\t\t\t"+versioned)
	var days atomic.Int64
	s := server{planetest.Start(t, planetest.Options{Bundle: bundle, Clock: func() time.Time { return time.Now().Add(time.Duration(days.Load()) * 24 * time.Hour) }})}
	s.Activate(t, indexed)
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	for _, name := range []string{"db-1", "db-2"} {
		s.must(t, "dana", "POST", databases, database(name, ""))
	}
	s.must(t, "dana", "DELETE", databases+"/db-2", "")
	days.Store(5)
	for _, name := range []string{"pipe-1", "pipe-2"} {
		s.must(t, "della", "POST", pipelines, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Pipeline","metadata":{"name":%q},"spec":{"steps":3}}`, name))
	}
	p := s.plan(t, "admin", strings.Replace(indexed, "\n\t\trbac: {", reading, 1), map[string]any{"replay": "1d"})
	if f := flip(t, p, "della", "create", "validation"); f.Count != 1 || f.Rule != "data/validate/for-database/database" || f.First != f.Last {
		t.Errorf("%s", show(p))
	}
	if len(p.Replay.Flips) != 1 || p.Replay.Undecided != 0 || p.Replay.Writes != 2 {
		t.Errorf("%s", show(p))
	}
}

// A refusal is decided again with what rules read when it was decided, and not with the state of today.
func TestReplayedRefusalsReadTheStateOfThen(t *testing.T) {
	indexed := changed(t, versioned, "index: [\".spec.owner\"]\n\t\t\t"+versioned)
	ruled := strings.Replace(indexed, "\n\t\trbac: {", reading, 1)
	s := start(t)
	s.Activate(t, ruled)
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	create := func(name, owner string) string {
		return fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":%q},"spec":{"owner":"%s@corp.example"}}`, name, owner)
	}
	pipe := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Pipeline","metadata":{"name":%q},"spec":{"steps":3}}`, name)
	}
	s.refused(t, 422, "della", "POST", pipelines, pipe("pipe-1")) // there is no database for it yet
	s.must(t, "dana", "POST", databases, create("db-1", "a"))
	s.refused(t, 422, "dana", "POST", databases, create("db-2", "a")) // db-1 has the owner
	s.must(t, "della", "POST", pipelines, pipe("pipe-1"))
	s.must(t, "dana", "POST", databases, create("db-2", "b"))
	stored := string(s.must(t, "dana", "GET", databases+"/db-2", ""))
	s.refused(t, 422, "dana", "PUT", databases+"/db-2", strings.Replace(stored, "b@corp", "a@corp", 1)) // the same
	s.must(t, "dana", "DELETE", databases+"/db-1", "")
	s.must(t, "dana", "POST", databases, create("db-3", "a"))
	s.refused(t, 422, "della", "POST", pipelines, pipe("pipe-4"))

	next := strings.Replace(ruled, "maxGiB: 500", "maxGiB: 499", 1)
	if p := s.plan(t, "admin", next, week); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 || p.Replay.Refusals != 4 {
		t.Errorf("the same rules: %s", show(p))
	}
	// Without the rule about owners, both of its refusals would be allowed, and the others not.
	p := s.plan(t, "admin", strings.Replace(next, "others().exists()", "others().exists() || true", 1), week)
	for _, verb := range []string{"create", "update"} {
		if f := flip(t, p, "dana", verb, "validation"); f.Refused || f.Count != 1 || f.Rule != "data/validate/own-owner/owner" {
			t.Errorf("%s", show(p))
		}
	}
	if len(p.Replay.Flips) != 2 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	// A pipeline needs any database: there was none for the first, and one for the second.
	p = s.plan(t, "admin", strings.Replace(next, "objects.databases.get('shop', object.metadata.name.replace('pipe', 'db')).hasValue()", "objects.databases.exists()", 1), week)
	if f := onlyFlip(t, p, false); f.User != "della" || f.Count != 1 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	// A user who may not list databases does not learn which there were.
	if p = s.plan(t, "pia", next, week); len(p.Replay.Flips) != 0 || !strings.Contains(strings.Join(p.Replay.Why, "\n"), "reads stored objects that you may not list") {
		t.Errorf("%s", show(p))
	}
}

// A status that a controller has written is tried as one that is written anew: what an update leaves as it is does not excuse it.
func TestStoredStatusesAreTried(t *testing.T) {
	s := start(t)
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	for _, name := range []string{"db-1", "db-2", "db-3"} {
		s.must(t, "dana", "POST", databases, fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":%q},"spec":{"owner":"a@corp.example"}}`, name))
		if name != "db-3" {
			s.must(t, "dana", "PATCH", databases+"/"+name+"/status", `{"status":{"phase":"Odd"}}`)
		}
	}
	for status, want := range map[string]int{
		`phase?: "New" | "Up"`:       2,
		`phase?: int`:                2,
		`phase?: =~"^[a-z]+$"`:       2,
		`phase?: string, seen!: int`: 2,
		`phase?: "Odd" | "Up"`:       0,
		`phase?: string, more?: int`: 0,
	} {
		p := s.plan(t, "admin", changed(t, "phase?: string", status), nil)
		violating := 0
		for i := range p.Findings {
			if o := p.Findings[i].Objects; o != nil && strings.HasPrefix(p.Findings[i].Path, "status") {
				violating = max(violating, o.Violating)
			}
		}
		if violating != want {
			t.Errorf("%s: %d objects, want %d\n%s", status, violating, want, show(p))
		}
	}
}
