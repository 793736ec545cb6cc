package policy_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
)

// manyRoles are the access rules of a large company: 10,000 roles over 200 kinds, each
// bound to one of 500 groups or 2,000 users in the namespaces of one of 1,000 tenants.
func manyRoles() policy.Form {
	f := policy.Form{}
	resource := func(i int) string { return fmt.Sprintf("kind%ds", i%200) }
	for i := range 10_000 {
		name := fmt.Sprintf("role%d", i)
		f.Roles = append(f.Roles, policy.Role{Name: name, Rules: []policy.Rule{
			{ID: name + "/edit", Verbs: list{"get", "list", "watch", "create", "update", "patch"}, APIGroups: list{"example.com"}, Resources: list{resource(i), resource(i + 1)}},
			{ID: name + "/status", Verbs: list{"get"}, APIGroups: list{"example.com"}, Resources: list{resource(i) + "/status"}},
			{ID: name + "/one", Verbs: list{"approve"}, APIGroups: list{"example.com"}, Resources: list{resource(i)}, ResourceNames: list{"main"}},
		}})
		subject := policy.Subject{Group: fmt.Sprintf("group%d", i%500)}
		if i%4 == 0 {
			subject = policy.Subject{User: fmt.Sprintf("user%d", i/4%2000)}
		}
		f.Bindings = append(f.Bindings, policy.Binding{ID: "t/bindings/" + name, Role: name, Subjects: []policy.Subject{subject}, Namespaces: list{fmt.Sprintf("tenant%d-*", i%1000)}})
	}
	// And one group that everybody is in has a binding of its own for each tenant.
	f.Roles = append(f.Roles, policy.Role{Name: "viewer", Rules: []policy.Rule{
		{ID: "viewer/all", Verbs: list{"get", "list", "watch"}, APIGroups: list{"example.com"}, Resources: list{"shared"}},
	}})
	for i := range 1000 {
		f.Bindings = append(f.Bindings, policy.Binding{ID: fmt.Sprintf("t/bindings/viewers%d", i), Role: "viewer",
			Subjects: []policy.Subject{{Group: "system:authenticated"}}, Namespaces: list{fmt.Sprintf("tenant%d-*", i)}})
	}
	for i := range 100 {
		id := fmt.Sprintf("t/denies/keep%d", i)
		f.Denies = append(f.Denies, policy.Deny{ID: id, Reason: "keep", Subjects: []policy.Subject{{Group: "system:authenticated"}}, Rules: []policy.Rule{
			{ID: id + "/all", Verbs: list{"deletecollection"}, APIGroups: list{"example.com"}, Resources: list{resource(2 * i)}},
		}})
	}
	return f
}

// The cost of a decision depends on who asks and on what for, not on how many rules there
// are about others: less than a microsecond for somebody in ten groups.
func BenchmarkAuthorize(b *testing.B) {
	p := newPolicy(b, manyRoles())
	groups := list{"system:authenticated"}
	for i := range 9 {
		groups = append(groups, fmt.Sprintf("group%d", 51*i+1))
	}
	for _, bm := range []struct {
		name              string
		verb, kind, where string
		allowed, denied   bool
	}{
		{name: "allowed", verb: "update", kind: "kind1s", where: "tenant1-prod", allowed: true},
		{name: "denied", verb: "deletecollection", kind: "kind2s", where: "tenant1-prod", denied: true},
		{name: "no-opinion", verb: "delete", kind: "kind1s", where: "tenant1-prod"},
		{name: "of-1000-bindings/allowed", verb: "get", kind: "shared", where: "tenant999-prod", allowed: true},
		{name: "of-1000-bindings/no-opinion", verb: "get", kind: "shared", where: "elsewhere"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			r := &policy.Request{IsResource: true, User: "user1", Groups: groups, Verb: bm.verb, Group: "example.com", Resource: bm.kind, Namespace: bm.where, Name: "w"}
			if d := p.Authorize(context.Background(), r); d.Allowed != bm.allowed || d.Denied != bm.denied {
				b.Fatalf("%+v", d)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Authorize(context.Background(), r)
			}
		})
	}
}

// size is how much there is in a bundle that [generate] makes.
type size struct{ kinds, rules, validations int }

// ofALargeCompany is the size that compiling and loading must be quick at.
var ofALargeCompany = size{kinds: 200, rules: 2000, validations: 500}

// generate writes a bundle of 20 teams, each with a file of its own, who share kinds and
// rules evenly.
func generate(tb testing.TB, s size) *bundles.Source {
	tb.Helper()
	const teams = 20
	files := fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"large.example.com\"\nlanguage: version: \"v0.17.0\"\n")},
		"bundle.cue":         {Data: []byte("package large\n\nimport \"stele.dev/policy\"\n\nbundle: policy.#Bundle & {cluster: \"large\"}\n")},
	}
	for team := range teams {
		b := &strings.Builder{}
		fmt.Fprintf(b, "package large\n\nbundle: teams: team%d: {contact: \"#team%[1]d\", groups: [\"team%[1]d.example.com\"], namespaces: [\"team%[1]d-*\"]}\n", team)
		for i := team; i < s.kinds; i += teams {
			generateKind(b, team, i)
		}
		generateRoles(b, team, s.rules/teams, s.kinds)
		generateValidations(b, team, s.validations/teams, s.kinds)
		files[fmt.Sprintf("team%d.cue", team)] = &fstest.MapFile{Data: []byte(b.String())}
	}
	source, err := bundles.ReadFS(files, ".")
	if err != nil {
		tb.Fatal(err)
	}
	return source
}

func generateKind(b *strings.Builder, team, i int) {
	fmt.Fprintf(b, `
#Kind%[2]d: {
	spec!: {
		// Engine and major version, as one word.
		engine!:  "postgres-16" | "postgres-17" | "mysql-8"
		owner!:   =~"^[a-z][a-z0-9.]*@example\\.com$"
		sizeGiB:  *10 | int & >=1 & <=4096
		tier:     *"small" | "medium" | "large"
		replicas: *0 | int & >=0 & <=5
		paused:   *false | bool
		region?:  "eu-%[2]d" | "us-%[2]d"
		backups: {
			enabled: *true | bool
			// Days until a backup is deleted.
			keepDays:  *7 | int & >=1 & <=365
			schedule?: =~"^[0-9*/, -]+$"
		}
		ports?: [...{name!: =~"^[a-z]+$", port!: int & >0 & <65536}]
		parameters?: [=~"^[a-z_]+$"]: string
	}
	status?: {
		phase?:              "Pending" | "Ready" | "Failed"
		observedGeneration?: int & >=0
	}
}
bundle: teams: team%[1]d: kinds: "kind%[2]ds.team%[1]d.example.com": {
	group: "team%[1]d.example.com"
	names: {kind: "Kind%[2]d", plural: "kind%[2]ds"}
	storageVersion: "v1"
	versions: v1: {
		#schema: #Kind%[2]d
		subresources: status: {}
		additionalPrinterColumns: [
			{name: "Engine", type: "string", jsonPath: ".spec.engine"},
			{name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp"},
		]
		selectableFields: [".spec.engine"]
	}
}
`, team, i)
}

// generateRoles writes roles of up to five rules, each bound to a group of its own.
func generateRoles(b *strings.Builder, team, rules, kinds int) {
	for i := 0; i < rules; i += 5 {
		name := fmt.Sprintf("team%d:role%d", team, i/5)
		fmt.Fprintf(b, "\nbundle: teams: team%d: rbac: clusterRoles: %q: rules: {\n", team, name)
		for j := range min(5, rules-i) {
			fmt.Fprintf(b, "\trule%d: {apiGroups: [\"team%d.example.com\"], resources: [\"kind%ds\"], verbs: [\"get\", \"list\", \"watch\", \"update\"]}\n", j, team, (i+j)*20%max(1, kinds)+team)
		}
		fmt.Fprintf(b, "}\nbundle: teams: team%d: rbac: bindings: %q: {clusterRole: %q, subjects: [{group: %q}], namespaces: [\"team%[1]d-*\"]}\n", team, fmt.Sprint("b", i/5), name, name)
	}
}

// generateValidations writes rules of admission, of the shapes that people write.
func generateValidations(b *strings.Builder, team, rules, kinds int) {
	shapes := []string{
		`params: max: 100, validations: x: {expression: "object.spec.sizeGiB <= params.max", messageExpression: "'over ' + string(params.max)"}`,
		`validations: x: {expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: "label it"}`,
		`validations: x: expression: "!has(object.spec.ports) || object.spec.ports.all(p, p.port > 1024)"`,
		`variables: kept: "object.spec.backups.keepDays", validations: x: expression: "object.spec.tier != 'large' || variables.kept >= 30"`,
		`validations: x: expression: "oldObject == null || object.spec.engine == oldObject.spec.engine"`,
	}
	for i := range rules {
		fmt.Fprintf(b, "\nbundle: teams: team%d: admission: validate: v%[2]d: {match: {apiGroups: [\"team%[1]d.example.com\"], resources: [\"kind%[3]ds\"]}, %[4]s}\n",
			team, i, i*20%max(1, kinds)+team, shapes[i%len(shapes)])
	}
}

// A bundle of a large company compiles in less than five seconds and 500 MiB.
func BenchmarkCompile(b *testing.B) {
	source := generate(b, ofALargeCompany)
	b.ReportAllocs()
	for b.Loop() {
		compileSource(b, source)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-of-the-process")
}

// Its form loads in less than half a second: that is what a replica needs to start, and
// for what every activation takes.
func BenchmarkNew(b *testing.B) {
	encoded, _ := compileSource(b, generate(b, ofALargeCompany)).Form.Encode()
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := probes.Load(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func compileSource(tb testing.TB, source *bundles.Source) *compile.Result {
	tb.Helper()
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		tb.Fatal(diags)
	}
	return compiled
}
