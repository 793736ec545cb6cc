package admission_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/fstest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// labelling is a rule that sets a label if another one has a value. Twice is as good as once.
type labelling struct {
	if1, is, set, to string
	reinvoked        bool
}

func (l *labelling) meets(labels map[string]string) bool { return labels[l.if1] == l.is }

// apply reports whether the labels have changed.
func (l *labelling) apply(labels map[string]string) bool {
	was, had := labels[l.set]
	labels[l.set] = l.to
	return !had || was != l.to
}

// asUpstream runs rules as kube-apiserver's dispatcher of MutatingAdmissionPolicies does, in two passes of its plugin chain.
func asUpstream(rules []labelling, labels map[string]string) {
	previously, reinvoke, again := map[int]bool{}, map[int]bool{}, false
	require := func() {
		maps.Copy(reinvoke, previously)
		clear(previously)
	}
	for pass := range 2 {
		if pass > 0 && !again {
			return
		}
		patched := false
		for i := range rules {
			if !rules[i].meets(labels) || pass > 0 && !reinvoke[i] {
				continue
			}
			if patched = true; rules[i].apply(labels) {
				require()
				again = true
			}
			if rules[i].reinvoked {
				previously[i] = true
			}
		}
		if patched {
			require()
			again = true
		}
	}
}

const (
	keys   = 5
	values = 3
)

func someRules(r *rand.Rand) []labelling {
	list := make([]labelling, 3+r.IntN(8))
	for i := range list {
		list[i] = labelling{key(r), value(r), key(r), value(r), r.IntN(3) > 0}
	}
	return list
}

func key(r *rand.Rand) string   { return fmt.Sprintf("k%d", r.IntN(keys)) }
func value(r *rand.Rand) string { return fmt.Sprintf("v%d", r.IntN(values)) }

// labellings returns the policy of a bundle with the rules.
func labellings(t *testing.T, rules []labelling) *policy.Policy {
	t.Helper()
	text := "package test\nimport \"stele.dev/policy\"\nbundle: policy.#Bundle & {cluster: \"test\", teams: t: {contact: \"#t\", groups: [\"*\"], namespaces: [\"*\"], admission: mutate: {\n"
	for i, l := range rules {
		reinvocation := map[bool]string{true: "IfNeeded", false: "Never"}[l.reinvoked]
		text += fmt.Sprintf("r%02d: {order: %d, reinvocationPolicy: %q, match: {apiGroups: [\"\"], resources: [\"configmaps\"], conditions: c: \"object.metadata.?labels[?'%s'].orValue('') == '%s'\"}\n", i, i, reinvocation, l.if1, l.is)
		text += fmt.Sprintf("\tmutations: s: {patchType: \"ApplyConfiguration\", expression: \"Object{metadata: Object.metadata{labels: {'%s': '%s'}}}\"}}\n", l.set, l.to)
	}
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(text + "}}}\n")},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	result, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	p, err := policy.Of(result.Form)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Rules that come to the same result if they run twice make of every object what kube-apiserver makes of it, whichever of them are
// reinvoked. Without reinvocation some objects would be others.
func TestReinvocationIsUpstreams(t *testing.T) {
	differ := 0
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 27))
		rules := someRules(r)
		p := labellings(t, rules)
		v := p.Version(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
		all := admission.MustOf(p)
		for range 150 {
			labels := map[string]string{}
			for range r.IntN(keys) {
				labels[key(r)] = value(r)
			}
			want, once := maps.Clone(labels), maps.Clone(labels)
			asUpstream(rules, want)
			for i := range rules {
				if rules[i].meets(once) {
					rules[i].apply(once)
				}
			}
			if !maps.Equal(once, want) {
				differ++
			}
			a := &admission.Attributes{
				Request: &policy.Request{User: "u", Verb: "create", IsResource: true, Version: "v1", Resource: "configmaps", Namespace: "default"}, Operation: policy.Create,
				Object:    &policy.Object{Meta: &metav1.ObjectMeta{Name: "a", Namespace: "default", Labels: maps.Clone(labels)}, Content: map[string]any{}},
				Namespace: func() *policy.Object { return nil },
			}
			m := all.Mutate(t.Context(), v, a, nil)
			if _, err := m.RunAll(all.Mutations(v, "", policy.Create)); err != nil {
				t.Fatal(err)
			}
			got := labels
			if o, err := m.Object(); err != nil {
				t.Fatal(err)
			} else if o != nil {
				got = o.Meta.Labels
			}
			if !maps.Equal(got, want) {
				t.Fatalf("seed %d: %v became %v, and upstream makes %v of it; the rules are %+v", seed, labels, got, want, rules)
			}
		}
	}
	if differ == 0 {
		t.Error("no object depends on reinvocation")
	}
}
