package policy_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
)

// rulesOfAdmission are n rules about things, of the shapes that people write.
func rulesOfAdmission(n int) string {
	shapes := []string{
		`params: max: MAX, validations: x: expression: "object.spec.size <= params.max"`,
		`validations: x: {expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: "label it"}`,
		`validations: x: expression: "object.spec.ports.all(p, p.port > 0 && p.port < 65536)"`,
		`validations: x: expression: "object.metadata.name.matches('^[a-z]+$')"`,
		`variables: size: "object.spec.size", validations: x: expression: "oldObject == null || variables.size >= oldObject.spec.size"`,
	}
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "admission: validate: v%03d: {match: {apiGroups: [\"b.example.com\"], resources: [\"things\"]}, %s}\n", i, strings.ReplaceAll(shapes[i%len(shapes)], "MAX", fmt.Sprint(100+i)))
	}
	return b.String()
}

// admitting makes a policy with n rules about things.
func admitting(t testing.TB, n int) (*policy.Policy, *policy.Version) {
	t.Helper()
	p := loaded(t, strings.NewReplacer("RULES", "", "BODY", rulesOfAdmission(n)).Replace(inCEL))
	return p, p.Version(schema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: "things"})
}

// What rules of admission cost that a write meets all.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, v := admitting(b, n)
			object := &policy.Object{
				Meta: &metav1.ObjectMeta{Name: "thing", Labels: map[string]string{"team": "x"}},
				Content: map[string]any{"spec": map[string]any{"size": int64(5), "names": []any{"a"}, "ports": []any{
					map[string]any{"name": "http", "port": int64(80)}, map[string]any{"name": "https", "port": int64(443)}}}},
			}
			b.ReportAllocs()
			for b.Loop() {
				found := admission.MustOf(p).Validate(b.Context(), v, &admission.Attributes{Request: &policy.Request{User: "u", Verb: "create"}, Operation: policy.Create, Object: object})
				if len(found) > 0 {
					b.Fatal(found)
				}
			}
		})
	}
}
