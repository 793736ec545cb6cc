package policy_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
)

// packed compiles a bundle of two packages: a team with packs, and an environment that adds to it.
func packed(t *testing.T, packs, environment string) (*policy.Policy, *compile.Result) {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
		"team/team.cue": {Data: []byte(`package team

import (
	"stele.dev/policy"
	"stele.dev/policy/packs"
)

team: policy.#Team & {
	contact: "#t", groups: ["*"], namespaces: ["*"]
	kinds: "databases.example.com": {
		group: "example.com"
		names: {kind: "Database", plural: "databases"}, storageVersion: "v1"
		index: [".spec.host", ".spec.primary"]
		versions: v1: #schema: spec: {primary?: bool, of?: string, storage?: string @k8s(format=quantity), replicas?: int, host?: string, backup?: {keep?: int}}
	}
	` + packs + `
}
`)},
		"clusters/a/cluster.cue": {Data: []byte(`package a

import (
	"stele.dev/policy"
	"example.com/test/team"
)

bundle: policy.#Bundle & {cluster: "a", teams: t: team.team}
` + environment)},
	}, "clusters/a")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	form, _ := compiled.Form.Encode()
	p, err := probes.Load(form)
	if err != nil {
		t.Fatal(err)
	}
	return p, compiled
}

// refusals are the messages with which a policy refuses an object of databases, or the delete of a namespace.
func refusals(t *testing.T, p *policy.Policy, operation policy.Operation, resource string, meta metav1.ObjectMeta, content map[string]any) (messages []string) {
	t.Helper()
	v := p.Version(p.Kind(schema.ParseGroupResource(resource)).GroupResource().WithVersion("v1"))
	object := &policy.Object{Meta: &meta, Content: content}
	a := &admission.Attributes{Request: &policy.Request{User: "u", Verb: strings.ToLower(string(operation)), IsResource: true, Group: v.Kind.Group, Version: "v1", Resource: v.Kind.Plural, Namespace: meta.Namespace, Name: meta.Name}, Operation: operation, Object: object}
	if operation == policy.Delete {
		a.Object, a.Old = nil, object
	}
	for _, f := range admission.MustOf(p).Validate(t.Context(), v, a) {
		if f.Denies() {
			messages = append(messages, f.Rule+": "+f.Message)
		}
	}
	slices.Sort(messages)
	return messages
}

func TestPackLimitRange(t *testing.T) {
	const packs = `
	admission: (packs.#LimitRange & {
		name: "storage", order: 10, apiGroups: ["example.com"], resources: ["databases"]
		field: "spec.storage", type: "quantity", default: "10Gi", min: "1Gi", max: string | *"500Gi"
	}).admission
	admission: (packs.#LimitRange & {
		name: "keep", order: 11, apiGroups: ["example.com"], resources: ["databases"], field: "spec.backup.keep", default: 7, max: 30
	}).admission
	admission: (packs.#LimitRange & {
		name: "replicas", apiGroups: ["example.com"], resources: ["databases"], field: "spec.replicas", min: 1
	}).admission`
	spec := func(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }
	p, compiled := packed(t, packs, "")
	small, _ := packed(t, packs, `bundle: teams: t: admission: validate: storage: params: max: "50Gi"`)
	off, _ := packed(t, packs, `bundle: teams: t: admission: validate: storage: params: enabled: false`)
	for name, tc := range map[string]struct {
		p    *policy.Policy
		spec map[string]any
		want []string
	}{
		"nothing set":                     {p, map[string]any{}, nil},
		"within":                          {p, map[string]any{"storage": "500Gi", "replicas": int64(1), "backup": map[string]any{"keep": int64(30)}}, nil},
		"too much":                        {p, map[string]any{"storage": "0.6Ti"}, []string{"t/validate/storage/max: spec.storage is 0.6Ti, and must be at most 500Gi"}},
		"too little":                      {p, map[string]any{"storage": "1023Mi", "replicas": int64(0)}, []string{"t/validate/replicas/min: spec.replicas is 0, and must be at least 1", "t/validate/storage/min: spec.storage is 1023Mi, and must be at least 1Gi"}},
		"below":                           {p, map[string]any{"backup": map[string]any{"keep": int64(31)}}, []string{"t/validate/keep/max: spec.backup.keep is 31, and must be at most 30"}},
		"too much for the environment":    {small, map[string]any{"storage": "51Gi"}, []string{"t/validate/storage/max: spec.storage is 51Gi, and must be at most 50Gi"}},
		"switched off for an environment": {off, map[string]any{"storage": "51Ti", "replicas": int64(0)}, []string{"t/validate/replicas/min: spec.replicas is 0, and must be at least 1"}},
	} {
		if d := cmp.Diff(tc.want, refusals(t, tc.p, policy.Create, "databases.example.com", metav1.ObjectMeta{Namespace: "n", Name: "d"}, spec(tc.spec))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	var orders []int64
	for _, m := range compiled.Form.Mutations {
		orders = append(orders, m.Order)
	}
	if !slices.Equal(orders, []int64{10, 11}) {
		t.Errorf("the defaults are set by rules of the order %v", orders)
	}
	_, changed := packed(t, packs, `bundle: teams: t: admission: {validate: {storage: params: max: "50Gi", keep: validationActions: ["Warn"]}, mutate: storage: params: enabled: false}`)
	if at := changed.Form.Mutations[0].Source; at.File != "team/team.cue" || at.Line != 18 {
		t.Errorf("the default that the environment changes is at %v", at)
	}
	for i, line := range map[int]int{0: 22, 2: 18, 3: 22, 5: 18} { // keep, storage: of the team, and changed by the environment
		if r := &slices.Concat(compiled.Form.Validations, changed.Form.Validations)[i]; r.Source.File != "team/team.cue" || r.Source.Line != line || r.Validations[0].Source.Line != line || r.Validations[0].Expression.Source.Line != line {
			t.Errorf("the rule %s is at %v, its check at %v, the expression at %v", r.ID, r.Source, r.Validations[0].Source, r.Validations[0].Expression.Source)
		}
	}
}

func TestPackProtectedNamespaces(t *testing.T) {
	p, _ := packed(t, `admission: (packs.#ProtectedNamespaces & {name: "protected", namespaces: ["prod", "shared"]}).admission`, "")
	for name, want := range map[string][]string{"prod": {"t/validate/protected/deleted: this namespace may not be deleted"}, "test": nil} {
		if d := cmp.Diff(want, refusals(t, p, policy.Delete, "namespaces", metav1.ObjectMeta{Name: name}, map[string]any{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestPackRequiredLabels(t *testing.T) {
	p, _ := packed(t, `admission: (packs.#RequiredLabels & {name: "labels", apiGroups: ["example.com"], resources: ["databases"], labels: {team: "", "example.com/tier": "^(gold|silver)$"}}).admission`, "")
	const (
		team = "t/validate/labels/team: the label team is missing"
		tier = "t/validate/labels/example.com:tier: the label example.com/tier is missing, or does not match ^(gold|silver)$"
	)
	for name, tc := range map[string]struct {
		labels map[string]string
		want   []string
	}{
		"none":        {nil, []string{tier, team}},
		"both":        {map[string]string{"team": "a", "example.com/tier": "gold"}, nil},
		"a bad value": {map[string]string{"team": "a", "example.com/tier": "golden"}, []string{tier}},
	} {
		if d := cmp.Diff(tc.want, refusals(t, p, policy.Create, "databases.example.com", metav1.ObjectMeta{Namespace: "n", Name: "d", Labels: tc.labels}, map[string]any{"spec": map[string]any{}})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Rules over other objects are tried against stored ones in core.
func TestPacksOverOtherObjectsCompile(t *testing.T) {
	_, compiled := packed(t, `
	admission: (packs.#UniqueField & {name: "host", kind: "databases.example.com", version: "v1", field: "spec.host"}).admission
	admission: (packs.#UniqueField & {name: "host-here", kind: "databases.example.com", version: "v1", field: "spec.host", within: "namespace"}).admission
	admission: (packs.#ReferenceExists & {name: "of", kind: "databases.example.com", field: "spec.of", to: {kind: "configmaps", version: "v1"}}).admission
	admission: (packs.#ReferenceExists & {name: "in", kind: "databases.example.com", field: "spec.of", to: {kind: "namespaces", version: "v1", namespaced: false}}).admission
	admission: (packs.#NoDeleteWhileReferenced & {name: "used", kind: "configmaps", from: {kind: "databases.example.com", version: "v1", field: "spec.host"}}).admission
	admission: (packs.#AtMostOneDefault & {name: "primary", kind: "databases.example.com", version: "v1", field: "spec.primary"}).admission`, "")
	var rules []string
	for i := range compiled.Form.Validations {
		rules = append(rules, compiled.Form.Validations[i].ID)
	}
	if want := []string{"t/validate/host", "t/validate/host-here", "t/validate/in", "t/validate/of", "t/validate/primary", "t/validate/used"}; !slices.Equal(rules, want) {
		t.Errorf("the rules are %q", rules)
	}
}
