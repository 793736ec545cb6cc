package plans_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// madeOf makes a plan of two bundles and of objects in a file.
func madeOf(t *testing.T, from, to, objects string) *plan.Plan {
	t.Helper()
	source, err := plans.ReadObjects(strings.NewReader(objects))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plans.Make(t.Context(), sidesOf(t, from, to), plans.Options{Objects: source, Samples: 3})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// withSpec returns databases db-0, db-1, ... with fields in their spec.
func withSpec(fields ...string) string {
	var b strings.Builder
	for i, spec := range fields {
		fmt.Fprintf(&b, `{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":"db-%d","namespace":"shop"},"spec":{"owner":"dana@corp.example","tier":"dev","pool":{"max":10},"backup":{"keepDays":7},%s}}`, i, spec)
	}
	return b.String()
}

// An object that violates several checks of a new rule is counted once.
func TestAnObjectIsCountedOncePerFinding(t *testing.T) {
	next := changed(t, "admission: validate: limit", `admission: validate: both: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE", "UPDATE"]}
			validations: one: {expression: "object.spec.storageGiB < 10", message: "ten"}
			validations: two: {expression: "object.spec.storageGiB < 20", message: "twenty"}
		}
		admission: validate: limit`)
	p := madeOf(t, bundle, next, withSpec(`"storageGiB":30`, `"storageGiB":15`, `"storageGiB":5`))
	if o := about(t, p, databaseKind, "data/validate/both").Objects; o.Violating != 2 || o.Stuck != 2 || o.Of != 3 || fmt.Sprint(names(o)) != "[shop/db-0 shop/db-1]" {
		t.Errorf("%s", show(p))
	}
}

// What is shown otherwise in a map is counted for the map, whichever keys it has, and the keys are not told.
func TestDifferencesInMapsAreCountedTogether(t *testing.T) {
	with := func(more string) string { return changed(t, "password?:", more+"\n\t\tpassword?:") }
	objects := withSpec(`"storageGiB":20,"shards":{"north":{"east":{"gone":{"a":1}}}}`, `"storageGiB":20,"shards":{"south":{"west":{"gone":{}}},"secretplace":{"west":{"gone":{"a":2}}}}`, `"storageGiB":20,"shards":{"south":{"west":{}}}`, `"storageGiB":20,"shards":{}`)
	var first string
	for range 20 {
		p := madeOf(t, with("shards?: [string]: [string]: {gone?: a?: int, kept?: int}"), with("shards?: [string]: [string]: {kept?: int}"), objects)
		f := about(t, p, databaseKind, "spec.shards[*][*].gone")
		if f.Objects.Differ != 2 || strings.Contains(show(p), "secretplace") || len(p.Findings) != 1 {
			t.Fatalf("%s", show(p))
		}
		if first == "" {
			first = show(p)
		}
		if show(p) != first {
			t.Fatalf("%s\nthen\n%s", first, show(p))
		}
	}
}

// broken is a source that panics.
type broken struct{ plans.Source }

func (b broken) Objects(*policy.Kind) iter.Seq[*plans.Object] {
	return func(func(*plans.Object) bool) { panic("broken source") }
}

// A panic in a goroutine comes to the caller, who can recover from it.
func TestAPanicComesToTheCaller(t *testing.T) {
	source, err := plans.ReadObjects(strings.NewReader(withSpec(`"storageGiB":30`)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if v := recover(); !strings.Contains(fmt.Sprint(v), "broken source") {
			t.Errorf("got %v", v)
		}
	}()
	_, err = plans.Make(t.Context(), sides(t, changed(t, "<=8192", "<=200")), plans.Options{Objects: broken{source}})
	t.Errorf("it did not panic: %v", err)
}
