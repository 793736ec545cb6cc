package policy_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
)

// conditional is a bundle in which uma is granted and denied what she writes on conditions.
func conditional(when, unless string) string {
	return `teams: a: {
	kinds: "widgets.a.example.com": {group: "a.example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1", versions: v1: #schema: {spec?: size?: int}}
	rbac: clusterRoles: make: rules: x: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["create"]}
	rbac: bindings: make: {clusterRole: "make", subjects: [{user: "uma"}], namespaces: ["a-*"], when: "` + when + `"}
	rbac: denies: keep: {subjects: [{user: "uma"}], rules: x: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["create"]}, reason: "no", unless: "` + unless + `"}
}`
}

func umaCreates() *policy.Request {
	return &policy.Request{User: "uma", Verb: "create", IsResource: true, Group: "a.example.com", Version: "v1", Resource: "widgets", Namespace: "a-1"}
}

func TestWhatIsConsideredOfAConditionThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		when, unless string
		deny, grant  string
	}{
		"both hold":                   {"true", "true", "exempt", "allows"},
		"neither holds":               {"false", "false", "denies", "its condition does not hold"},
		"neither can be evaluated":    {"request.userInfo.extra['a'] == []", "request.userInfo.extra['b'] == []", "denies, its exception cannot be evaluated: no such key: b", "its condition cannot be evaluated: no such key: a"},
		"only the object can tell":    {"object.spec.size < 5", "object.spec.size < 5", "depends on the object", "depends on the object"},
		"an index that is not there":  {"request.userInfo.groups[3] == 'x'", "true", "exempt", "its condition cannot be evaluated: index out of bounds: 3"},
		"what is not reached is fine": {"true || request.userInfo.groups[3] == 'x'", "true", "exempt", "allows"},
	} {
		t.Run(name, func(t *testing.T) {
			list := loaded(t, conditional(tc.when, tc.unless)).Consider(umaCreates(), &policy.Decision{})
			if len(list) != 2 || list[0].Verdict != tc.deny || list[1].Verdict != tc.grant {
				t.Errorf("considered %+v\nwant %q and %q", list, tc.deny, tc.grant)
			}
		})
	}
}

func TestWhyAConditionOnTheObjectGrantsNothing(t *testing.T) {
	for name, tc := range map[string]struct{ when, want string }{
		"it does not hold":       {"object.spec.size > 5", `"a/bindings/make" (bundle.cue:14) would allow it, but its condition does not hold: object.spec.size > 5`},
		"it cannot be evaluated": {"object.metadata.labels['x'] == 'y'", `"a/bindings/make" (bundle.cue:14) would allow it, but its condition cannot be evaluated: no such key: labels`},
	} {
		t.Run(name, func(t *testing.T) {
			p := loaded(t, conditional(tc.when, "true"))
			d := p.Authorize(context.Background(), umaCreates())
			if d.Pending == nil {
				t.Fatalf("it was decided without the object: %+v", d)
			}
			v := p.Version(schema.GroupVersionResource{Group: "a.example.com", Version: "v1", Resource: "widgets"})
			object := &policy.Object{Meta: &metav1.ObjectMeta{Name: "w"}, Content: map[string]any{"spec": map[string]any{"size": int64(1)}}}
			if d = d.Pending.Decide(t.Context(), v, object, nil); d.Allowed || d.Reason != tc.want {
				t.Errorf("it says %q\nwant    %q", d.Reason, tc.want)
			}
		})
	}
}
