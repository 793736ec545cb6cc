package plans_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// sides returns the two sides of a change set.
func sides(t testing.TB, next string) plan.Sides { t.Helper(); return sidesOf(t, bundle, next) }

// sidesOf returns two bundles as two policies.
func sidesOf(t testing.TB, from, to string) plan.Sides {
	t.Helper()
	load := func(text string) *policy.Policy {
		form, _ := planetest.Compile(t, text).Form.Encode()
		p, err := planetest.Load(form)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	return plan.Sides{From: load(from), To: load(to)}
}

// export returns databases as a file, in lists.
func export(n int) io.Reader {
	var b strings.Builder
	for i := range n {
		if i%1000 == 0 {
			if i > 0 {
				b.WriteString("]}\n")
			}
			b.WriteString(`{"apiVersion":"v1","kind":"List","items":[`)
		} else {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":"db-%06d","namespace":"shop"},"spec":{"backup":{"keepDays":7},"owner":"dana@corp.example","pool":{"max":10},"storageGiB":%d,"tier":"dev"}}`, i, 1+i%400)
	}
	b.WriteString("]}")
	return strings.NewReader(b.String())
}

// TestObjectsOfAFile makes a plan without a server.
func TestObjectsOfAFile(t *testing.T) {
	source, err := plans.ReadObjects(export(2500))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plans.Make(t.Context(), sides(t, changed(t, "<=8192", "<=200")), plans.Options{Objects: source, Samples: 2})
	if err != nil {
		t.Fatal(err)
	}
	if f := about(t, p, databaseKind, "spec.storageGiB"); f.Objects.Violating != 1200 || f.Objects.Of != 2500 || names(f.Objects)[0] != "shop/db-000399" {
		t.Errorf("%s", show(p))
	}
}

// BenchmarkObjects tries 100,000 objects.
func BenchmarkObjects(b *testing.B) {
	source, err := plans.ReadObjects(export(100_000))
	if err != nil {
		b.Fatal(err)
	}
	s := sides(b, changed(b, "<=8192", "<=200", "maxGiB: 500", "maxGiB: 300"))
	for b.Loop() {
		if _, err := plans.Make(b.Context(), s, plans.Options{Objects: source, Samples: 3}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReplayMany decides 100,000 writes again, and reports the time of the plan. Making the records takes much longer.
func BenchmarkReplayMany(b *testing.B) {
	const writers, each = 50, 2000
	s := stocked(b)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			name := fmt.Sprintf("many-%02d", i)
			s.must(b, "admin", "POST", databases, database(name, `,"storageGiB":100`))
			for n := range each - 1 {
				s.must(b, "admin", "PATCH", databases+"/"+name, fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, n))
			}
		})
	}
	all.Wait()
	next := changed(b, "maxGiB: 500", "maxGiB: 300")
	for b.Loop() {
		if p := s.plan(b, "admin", next, map[string]any{"replay": "7d", "objects": false}); p.Replay.Writes < writers*each {
			b.Fatal(show(p))
		}
	}
}

// BenchmarkReplay decides 5,000 writes again.
func BenchmarkReplay(b *testing.B) {
	s := stocked(b)
	for i := range 5000 {
		s.must(b, "dana", "PATCH", databases+"/db-10", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
	}
	next := changed(b, "maxGiB: 500", "maxGiB: 300")
	for b.Loop() {
		s.plan(b, "admin", next, map[string]any{"replay": "7d", "objects": false})
	}
}
