package fromcue_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/limits/cputime"
	"stele.dev/stele/schemas/program"
)

// Unions multiply. A union that takes CUE too long is rejected, or left to CUE, in time.
func TestExponentialUnions(t *testing.T) {
	var text strings.Builder
	text.WriteString("#schema: spec: {")
	for i := range 12 {
		fmt.Fprintf(&text, "u%d?: {t: \"a\", x%d: int} | {t: \"b\", y%d: int} | {t: \"c\"}\n", i, i, i)
	}
	text.WriteString("}")
	cputime.Within(t, 20*time.Second, func() {
		n, diags := compileText(t, text.String())
		if diags != nil {
			t.Fatal(diags)
		}
		p, err := program.New(n)
		if err != nil {
			t.Fatal(err)
		}
		if errs := p.Validate(decoded(t, `{"spec": {"u3": {"t": "a", "x3": 1}, "u7": {"t": "b"}}}`)); len(errs) != 1 {
			t.Error(errs)
		}
	})
}

func TestLongLists(t *testing.T) {
	n := mustCompile(t, `
import "list"
#U: {t: "a", x: int} | {t: "b", y: *3 | int}
#C: {k: *"a" | "b", min: int, max: int & >min
	if k == "a" {z: *"z" | string}}
#schema: spec: {
	unions?: [...#U]
	related?: [...#C]
	unique?: [...string] & list.UniqueItems()
	keyed?: [...{name!: string}] @k8s(listType=map,listMapKeys=name)
}`)
	p, err := program.New(n)
	if err != nil {
		t.Fatal(err)
	}
	const many = 10_000
	list := func(item func(i int) string) string {
		items := make([]string, many)
		for i := range items {
			items[i] = item(i)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	valid := decoded(t, `{"spec": {"unions": `+list(func(i int) string { return `{"t": "b"}` })+
		`, "related": `+list(func(i int) string { return fmt.Sprintf(`{"min": %d, "max": %d}`, i, i+1) })+
		`, "unique": `+list(func(i int) string { return fmt.Sprintf(`"%d"`, i) })+
		`, "keyed": `+list(func(i int) string { return fmt.Sprintf(`{"name": "%d"}`, i) })+`}}`)
	invalid := decoded(t, `{"spec": {"unions": `+list(func(i int) string { return `{"t": 5}` })+
		`, "related": `+list(func(i int) string { return fmt.Sprintf(`{"min": %d, "max": %d, "z": 1}`, i, i) })+
		`, "unique": `+list(func(i int) string { return `""` })+
		`, "keyed": `+list(func(i int) string { return `{"name": ""}` })+`}}`)
	cputime.Within(t, 10*time.Second, func() {
		p.Prepare(valid)
		if errs := p.Validate(valid); errs != nil {
			t.Error(errs[0])
		}
		p.Prepare(invalid)
		if errs := p.Validate(invalid); len(errs) < 3*many {
			t.Errorf("%d errors", len(errs))
		}
	})
}

// A value beyond the limits of an evaluation is invalid.
func TestWhatIsTooLargeForCUEIsRefused(t *testing.T) {
	p, err := program.New(mustCompile(t, `#schema: spec: {a: [...int], sum: len(a)}`))
	if err != nil {
		t.Fatal(err)
	}
	object := decoded(t, `{"spec": {"a": [`+strings.Repeat("1,", 100_000)+`1], "sum": 100001}}`)
	cputime.Within(t, 10*time.Second, func() {
		p.Prepare(object)
		errs := p.Validate(object)
		if len(errs) != 1 || errs[0].Field != "spec" || !strings.Contains(errs[0].Detail, "could not be checked") {
			t.Error(errs)
		}
	})
}

// The total time is limited, however many parts of an object need CUE.
func TestManyPartsForCUE(t *testing.T) {
	for _, schema := range []string{
		`#schema: spec: items?: [...{lo: int, hi: lo + 1}]`,
		`#schema: spec: items?: [...{x!: int, y?: string} | {x!: int, z?: string}]`,
	} {
		p, err := program.New(mustCompile(t, schema))
		if err != nil {
			t.Fatal(err)
		}
		few, many := strings.Repeat(`{"x": 1, "lo": 1},`, 20), strings.Repeat(`{"x": 1, "lo": 1},`, 20_000)
		if object := decoded(t, `{"spec": {"items": [`+strings.TrimSuffix(strings.ReplaceAll(few, `"x": 1, `, ``), ",")+`]}}`); strings.Contains(schema, "lo") {
			p.Prepare(object)
			if errs := p.Validate(object); errs != nil {
				t.Error(errs)
			}
		}
		object := decoded(t, `{"spec": {"items": [`+strings.TrimSuffix(many, ",")+`]}}`)
		cputime.Within(t, 15*time.Second, func() {
			p.Prepare(object)
			if errs := p.Validate(object); errs == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestTextThatIsNotUTF8(t *testing.T) {
	p, err := program.New(mustCompile(t, `
import "strings"
#schema: spec: {a?: strings.MaxRunes(3), b?: =~"^x", c?: {d: string, e: d}}`))
	if err != nil {
		t.Fatal(err)
	}
	bad := "\xff\xfe\xfd\xfc"
	object := map[string]any{"spec": map[string]any{"a": bad, "b": bad, "c": map[string]any{"d": bad, "e": bad}, bad: bad}}
	p.Prepare(object)
	for _, e := range p.Validate(object) {
		_ = e.Error()
	}
}

// Programs with fallbacks are safe for concurrent use.
func TestProgramsAreSafeForConcurrentUse(t *testing.T) {
	p, err := program.New(mustCompile(t, `
#U: {a: int, c: *1 | int} | {a: int, c: *2 | int} | {b: string}
#schema: spec: {cpus: int & >0, memory: *(cpus * 2) | int, u?: #U}`))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for j := range 10 {
				cpus := int64(i*10 + j + 1)
				object := map[string]any{"spec": map[string]any{"cpus": cpus, "u": map[string]any{"a": cpus, "c": cpus}}}
				p.Prepare(object)
				if errs := p.Validate(object); errs != nil {
					t.Error(errs)
				}
				if got := object["spec"].(map[string]any)["memory"]; got != 2*cpus {
					t.Errorf("%d cpus have %v of memory", cpus, got)
				}
				if errs := p.Validate(map[string]any{"spec": map[string]any{"cpus": -cpus}}); errs == nil {
					t.Error("accepted")
				}
			}
		})
	}
	group.Wait()
}
