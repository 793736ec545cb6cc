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

// mutationsOfThings are n rules that change things, of the shapes that people write.
func mutationsOfThings(n int) string {
	shapes := []string{
		`patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {'l%d': 'x'}}}"`,
		`patchType: "JSONPatch", expression: "[JSONPatch{op: 'add', path: '/metadata/labels/l%d', value: 'x'}]"`,
		`patchType: "ApplyConfiguration", expression: "Object{spec: Object.spec{size: object.spec.size + %[1]d - %[1]d + 1}}"`,
		`patchType: "ApplyConfiguration", expression: "Object{spec: Object.spec{tags: {'t%d': object.spec.size}}}"`,
	}
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "admission: mutate: m%03d: {order: %d, match: {apiGroups: [\"b.example.com\"], resources: [\"things\"]}, mutations: x: {%s}}\n", i, i, fmt.Sprintf(shapes[i%len(shapes)], i))
	}
	return b.String()
}

// What mutations cost that a write meets all, with defaults filled in after each.
func BenchmarkMutate(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := loaded(b, strings.NewReplacer("RULES", "", "BODY", mutationsOfThings(n)).Replace(inCEL))
			v := p.Version(schema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: "things"})
			object := &policy.Object{
				Meta: &metav1.ObjectMeta{Name: "thing", Labels: map[string]string{"team": "x"}},
				Content: map[string]any{"spec": map[string]any{"size": int64(5), "names": []any{"a"}, "ports": []any{
					map[string]any{"name": "http", "port": int64(80)}, map[string]any{"name": "https", "port": int64(443)}}}},
			}
			rules := admission.MustOf(p)
			prepare := func(content map[string]any) ([]string, error) {
				unknown, _, err := v.Program.TryPrepare(content)
				if err != nil {
					return nil, err
				}
				return unknown, nil
			}
			b.ReportAllocs()
			for b.Loop() {
				m := rules.Mutate(b.Context(), v, &admission.Attributes{Request: &policy.Request{User: "u", Verb: "create"}, Operation: policy.Create, Object: object}, prepare)
				all := rules.Mutations(v, "", policy.Create)
				if len(all) != n {
					b.Fatalf("%d rules are about things", len(all))
				}
				for i := range all {
					if applied, _, err := m.Run(&all[i]); err != nil || len(applied) == 0 {
						b.Fatal(all[i].ID, applied, err)
					}
				}
				if _, err := m.Object(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
