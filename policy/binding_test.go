package policy_test

import (
	"context"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
)

// What a binding says of itself is what its grants come to.
func TestWhereABindingGrants(t *testing.T) {
	for _, namespaces := range [][]string{nil, {"*"}, {"a"}, {"a", "b-*"}, {"b-*", "*"}, {"*-a"}, {"**"}} {
		binding := policy.Binding{ID: "t/bindings/b", Role: "r", Subjects: []policy.Subject{{User: "u"}}, Namespaces: namespaces}
		form := &policy.Form{Version: policy.FormVersion, Bindings: []policy.Binding{binding},
			Roles: []policy.Role{{Name: "r", Rules: []policy.Rule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"x"}}}}}}
		encoded, _ := form.Encode()
		p, err := probes.Load(encoded)
		if err != nil {
			t.Fatal(err)
		}
		granted := func(namespace string) bool {
			return p.Authorize(context.Background(), &policy.Request{User: "u", IsResource: true, Verb: "get", Resource: "x", Namespace: namespace}).Allowed
		}
		if got, want := binding.Everywhere(), granted(""); got != want {
			t.Errorf("%q everywhere: %t, want %t", namespaces, got, want)
		}
		for _, namespace := range []string{"a", "b", "b-", "b-c", "x-a"} {
			if got, want := binding.In(namespace), granted(namespace); got != want {
				t.Errorf("%q in %s: %t, want %t", namespaces, namespace, got, want)
			}
		}
	}
}
