package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/probes"
)

// layered is a repository of a base, a team and a cluster. Each of them has a role, a
// binding, a deny and a bound of a schema; the comments name the lines that refusals and
// grants have to point at.
var layered = map[string]string{
	"base/base.cue": `package base

import "stele.dev/policy"

#Bounded: int & <=10 // bound in base

bundle: policy.#Bundle & {
	teams: {
		platform: {contact: "#platform", groups: ["*"], namespaces: ["*"]}
		widgets: {contact: "#widgets", groups: ["example.com"], namespaces: ["widgets-*"]}
	}
	teams: platform: rbac: {
		clusterRoles: "base-role": rules: {
			read: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get"]} // rule in base
		}
		bindings: "base-binding": { // binding in base
			clusterRole: "base-role"
			subjects: [{user: "base"}]
			namespaces: ["*"]
		}
		denies: "base-deny": { // deny in base
			subjects: [{user: "base"}]
			rules: all: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["delete"]}
			reason: "no"
		}
	}
	teams: platform: admission: validate: "base-rule": {
		match: {apiGroups: ["example.com"], resources: ["widgets"]}
		validations: no: {expression: "object.metadata.name != 'base'"} // validation in base
	}
}
`,
	"teams/widgets/kind.cue": `package widgets

import (
	"example.com/layered/base"
	"stele.dev/policy"
)

#Widget: spec!: {
	ofbase?: base.#Bounded
	ofteam?: int & <=10 // bound in team
	ofcluster?: int & <=10
	ofboth?: int & <=10 // bound in team, where the cluster has a wider one
}

team: policy.#Team & {
	kinds: "widgets.example.com": {
		group: "example.com"
		names: {kind: "Widget", plural: "widgets"}
		storageVersion: "v1"
		versions: v1: #schema: #Widget
		versions: v1: validations: team: {rule: "self.metadata.name != 'team'"} // rule of the schema in team
	}
	admission: validate: "team-rule": {
		match: {apiGroups: ["example.com"], resources: ["widgets"]}
		params: name: string | *"team"
		validations: no: {expression: "object.metadata.name != params.name && object.metadata.name != 'team'"} // validation in team
	}
}
`,
	"teams/widgets/rbac.cue": `package widgets

team: rbac: {
	clusterRoles: "team-role": rules: {
		read: { // rule in team
			apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get"]
		}
	}
	bindings: "team-binding": {clusterRole: "team-role", subjects: [{user: "team"}], namespaces: ["widgets-*"]} // binding in team
	bindings: "shared-binding": {
		clusterRole: *"team-role" | "edit"
		subjects: [{user: "shared"}]
		namespaces: [...string] | *["widgets-none"]
	}
	denies: "team-deny": { // deny in team
		subjects: [{user: "team"}]
		rules: all: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["delete"]}
		reason: "no"
	}
}
`,
	"clusters/c/cluster.cue": `package c

import (
	"example.com/layered/base"
	"example.com/layered/teams/widgets"
)

bundle: base.bundle & {
	cluster: "c"
	teams: "widgets": widgets.team
	teams: "widgets": kinds: "widgets.example.com": versions: v1: #schema: spec: {
		ofcluster?: <=5 // bound in cluster
		ofboth?: <=50
	}
	teams: "widgets": kinds: "widgets.example.com": versions: v1: validations: cluster: {rule: "self.metadata.name != 'cluster'"} // rule of the schema in cluster
}

bundle: teams: "widgets": admission: validate: {
	"team-rule": params: name: "of the cluster's choice"
	"cluster-rule": {
		match: {apiGroups: ["example.com"], resources: ["widgets"]}
		validations: no: {expression: "object.metadata.name != 'cluster'"} // validation in cluster
	}
}
bundle: teams: "widgets": rbac: {
	clusterRoles: "cluster-role": rules: read: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get"]} // rule in cluster
	bindings: "cluster-binding": { // binding in cluster
		clusterRole: "cluster-role"
		subjects: [{user: "cluster"}]
		namespaces: ["widgets-*"]
	}
	bindings: "shared-binding": namespaces: ["widgets-*"] // binding of the team, changed in cluster
	denies: "cluster-deny": {subjects: [{user: "cluster"}], rules: all: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["delete"]}, reason: "no"} // deny in cluster
}
`,
}

// P5: what is allowed and what is refused points at the line of whoever wrote the rule. Of
// a bound that two packages set, that is the narrower one's.
func TestRulesPointAtTheirOwnLine(t *testing.T) {
	module := fstest.MapFS{"cue.mod/module.cue": {Data: []byte("module: \"example.com/layered\"\nlanguage: version: \"v0.17.0\"\n")}}
	lines := map[string]string{}
	for file, text := range layered {
		module[file] = &fstest.MapFile{Data: []byte(text)}
		for i, line := range strings.Split(text, "\n") {
			if _, name, ok := strings.Cut(line, " // "); ok {
				lines[name] = fmt.Sprintf("%s:%d", file, i+1)
			}
		}
	}
	source, err := bundles.ReadFS(module, "clusters/c")
	if err != nil {
		t.Fatal(err)
	}
	encoded, _ := compileSource(t, source).Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	decide := func(user, verb string) *policy.Decision {
		return p.Authorize(context.Background(), &policy.Request{User: user, Verb: verb, IsResource: true, Group: "example.com", Resource: "widgets", Namespace: "widgets-a", Name: "w"})
	}
	kind := p.Version(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	for _, where := range []string{"base", "team", "cluster"} {
		t.Run(where, func(t *testing.T) {
			if d := decide(where, "get"); !d.Allowed || d.Source != lines["binding in "+where] || !strings.Contains(d.Reason, "read\" ("+lines["rule in "+where]+")") {
				t.Errorf("a grant of %s, by a rule of %s: %+v", lines["binding in "+where], lines["rule in "+where], d)
			}
			if d := decide(where, "delete"); !d.Denied || d.Source != lines["deny in "+where] || !strings.HasSuffix(d.Reason, "("+d.Source+")") {
				t.Errorf("a deny of %s: %+v", lines["deny in "+where], d)
			}
			refused(t, kind, "of"+where, lines["bound in "+where])
			object := &policy.Object{Meta: &metav1.ObjectMeta{Name: where}, Content: map[string]any{"spec": map[string]any{}}}
			found := admission.MustOf(p).Validate(t.Context(), kind, &admission.Attributes{Request: &policy.Request{}, Operation: policy.Create, Object: object})
			if len(found) != 1 || found[0].Source != lines["validation in "+where] {
				t.Errorf("a validation of %s: %+v", lines["validation in "+where], found)
			}
			errs, _ := kind.ValidateRules(t.Context(), object, nil)
			if want := lines["rule of the schema in "+where]; want != "" && (len(errs) != 1 || !strings.HasSuffix(errs[0].Error(), "("+want+")")) {
				t.Errorf("a rule of the schema, of %s: %v", want, errs)
			}
		})
	}
	t.Run("team and cluster", func(t *testing.T) {
		// What a cluster changes, it is answerable for.
		if d := decide("shared", "get"); !d.Allowed || d.Source != lines["binding of the team, changed in cluster"] {
			t.Errorf("%+v", d)
		}
		refused(t, kind, "ofboth", lines["bound in team, where the cluster has a wider one"])
	})
}

// refused sets a field of the spec to a number that is too large.
func refused(t *testing.T, kind *policy.Version, field, want string) {
	t.Helper()
	errs := kind.Program.Validate(map[string]any{"spec": map[string]any{field: int64(11)}})
	if len(errs) != 1 || !strings.HasSuffix(errs[0].Error(), "("+want+")") {
		t.Errorf("spec.%s is bound by %s: %v", field, want, errs)
	}
}
