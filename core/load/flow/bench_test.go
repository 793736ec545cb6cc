package flow_test

import (
	"fmt"
	"testing"

	"stele.dev/stele/policy"
)

// BenchmarkStage is the whole stage for a request that does not wait, with 200 flow schemas.
func BenchmarkStage(b *testing.B) {
	f := policy.Flow{PriorityLevels: []policy.PriorityLevel{level("own", 1000)}}
	for i := range 200 {
		f.FlowSchemas = append(f.FlowSchemas, schemaFor(fmt.Sprint("user", i), "own"))
	}
	tip := tipOf(b, 1, f)
	for name, user := range map[string]string{"own": "user150", "builtin": "somebody"} {
		b.Run(name, func(b *testing.B) {
			c := newControl(1000)
			r := requestOf(tip, user)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Take(b.Context(), r); err != nil {
					b.Fatal(err)
				}
				r.EndFlow()
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		c := newControl(1000)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			r := requestOf(tip, "user7")
			for pb.Next() {
				if err := c.Take(b.Context(), r); err != nil {
					b.Error(err)
				}
				r.EndFlow()
			}
		})
	})
}
