package lookup_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/core/write/lookup"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
)

// BenchmarkRules measures what one rule costs a write that reads 5000 stored objects by key or by an index, beside a rule that
// reads none.
func BenchmarkRules(b *testing.B) {
	rules := map[string]string{
		"0 no lookup":        `object.spec.size > 0`,
		"1 by key":           `objects.databases.get('default', 'd17').hasValue()`,
		"2 by key, a field":  `objects.databases.get('default', 'd17').value().spec.size > 0`,
		"3 by index, exists": `!objects.databases.where('spec.host', object.spec.host).others().exists()`,
		"4 by index, list":   `objects.databases.where('spec.region', 'r17').list().all(d, d.spec.size > 0)`,
		"5 count":            `objects.databases.namespace('default').count() < 100000`,
	}
	p := planetest.Start(b, planetest.Options{Bundle: ruled("")})
	for i := range 5000 {
		if a := do(p, "POST", databases, database(fmt.Sprint("d", i), fmt.Sprintf(`"host":"h%d","region":"r%d"`, i, i/10))); a.code != 201 {
			b.Fatal(a.body)
		}
	}
	gvr := schema.GroupVersionResource{Group: "data.example.com", Version: "v1", Resource: "databases"}
	for _, name := range []string{"0 no lookup", "1 by key", "2 by key, a field", "3 by index, exists", "4 by index, list", "5 count"} {
		b.Run(name[2:], func(b *testing.B) {
			objects := `objects: databases: _databases`
			if name[0] == '0' {
				objects = ""
			}
			p.Activate(b, ruled(fmt.Sprintf("r: {match: _written, %s\n validations: x: expression: %q}", objects, rules[name])))
			tip := p.Committer.Tip()
			all, v := admission.MustOf(tip.Policy), tip.Policy.Version(gvr)
			key := commit.Key{GroupResource: gvr.GroupResource(), Namespace: "default", Name: "new"}
			object := &policy.Object{Meta: &metav1.ObjectMeta{Name: "new", Namespace: "default"}, Content: map[string]any{"spec": map[string]any{"size": int64(1), "host": "new"}}}
			cache := lookup.NewCache()
			b.ReportAllocs()
			for b.Loop() {
				reader := cache.Reader(tip.Objects, &key)
				found := all.Validate(b.Context(), v, &admission.Attributes{Request: &policy.Request{User: "u", Verb: "create", Namespace: "default"}, Operation: policy.Create, Object: object, Stored: &reader})
				if len(found) > 0 {
					b.Fatal(found)
				}
				checks := commit.Checks{PolicyRevision: tip.PolicyRevision()}
				reader.AddChecks(&checks)
				if stale := checks.Evaluate(tip.Objects, tip.Policies); stale != nil {
					b.Fatal(stale)
				}
			}
		})
	}
}
