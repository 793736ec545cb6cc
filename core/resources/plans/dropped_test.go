package plans_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"stele.dev/stele/policy/plan"
)

// droppedLine is how a push says that a field would be lost.
var droppedLine = regexp.MustCompile(`databases\.data\.corp\.example: (\S+) is not in the new schema; (\d+) object`)

// TestWhatAPushDropsAPlanSays removes fields in many ways: by an alternative that is gone, a condition, a struct that is closed. Whatever the push
// refuses is in a finding of the plan, which breaks.
func TestWhatAPushDropsAPlanSays(t *testing.T) {
	const at = "backup: keepDays: int & >=1 | *7"
	for _, x := range []struct {
		name, from, to, stored string
		want                   []string
	}{
		{"an alternative", `pay!: {type!: "sepa", iban!: string} | {type!: "card", number!: string} | {type!: "check", address!: string, zip?: string}`,
			`pay!: {type!: "sepa", iban!: string} | {type!: "card", number!: string}`, `"pay":{"type":"check","address":"x"}`, []string{"spec.pay.address"}},
		{"an alternative deeper", `pay!: {type!: "a", to!: {x?: int}} | {type!: "b", to!: {x?: int, y!: int}}`, `pay!: {type!: "a", to!: {x?: int}}`, `"pay":{"type":"b","to":{"x":1,"y":2}}`, []string{"spec.pay.to.y"}},
		{"an alternative without a discriminator", `pay!: {iban!: string} | {card!: string, holder?: string}`, `pay!: {iban!: string}`, `"pay":{"card":"x","holder":"y"}`, []string{"spec.pay.card", "spec.pay.holder"}},
		{"an alternative in a list", `pays!: [...({type!: "a", x!: int} | {type!: "b", y!: int})]`, `pays!: [...{type!: "a", x!: int}]`, `"pays":[{"type":"a","x":1},{"type":"b","y":2}]`, []string{"spec.pays[].y"}},
		{"fields that other alternatives have", `pay!: {type!: "a", x!: int} | {type!: "b", y!: int} | {type!: "c", x!: int, y!: int}`, `pay!: {type!: "a", x!: int} | {type!: "b", y!: int}`, `"pay":{"type":"c","x":1,"y":1}`, nil},
		{"a field of an alternative", `pay!: {type!: "a", x?: int} | {type!: "b", y?: int, x?: int}`, `pay!: {type!: "a", x?: int} | {type!: "b", y?: int}`, `"pay":{"type":"b","x":1}`, nil},
		{"a condition", `kind: *"a" | "b", if kind == "b" {more?: int}`, `kind: *"a" | "b"`, `"kind":"b","more":1`, []string{"spec.more"}},
		{"a closed struct", `free?: {...}`, `free?: {a?: int}`, `"free":{"a":1,"b":2}`, []string{"spec.free.b"}},
		{"a map", `free?: [string]: int`, `free?: {a?: int}`, `"free":{"a":1,"b":2}`, nil},
		{"a map of structs", `free?: [string]: {a?: int, b?: int}`, `free?: [string]: {a?: int}`, `"free":{"k":{"a":1,"b":2}}`, nil},
		{"a field", `gone?: string`, `kept?: string`, `"gone":"x"`, []string{"spec.gone"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := start(t)
			s.Activate(t, changed(t, at, x.from))
			s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
			for _, name := range []string{"one", "two"} {
				s.must(t, "dana", "POST", databases, database(name, ","+x.stored))
			}
			next := changed(t, at, x.to)
			p := s.plan(t, "admin", next, nil)
			without := s.plan(t, "admin", next, map[string]any{"objects": false})
			push := strings.Replace(request(next, nil), `"kind":"Plan"`, `"kind":"Policy"`, 1)
			answer, err := s.send(t, "admin", "POST", "/apis/policy.stele.dev/v1/policies?dryRun=All", push)
			text := string(answer)
			if err != nil {
				var status struct{ Message string }
				if json.Unmarshal(answer, &status) == nil && status.Message != "" {
					text = status.Message
				} else {
					text = err.Error()
				}
			}
			var dropped []string
			for _, match := range droppedLine.FindAllStringSubmatch(text, -1) {
				dropped = append(dropped, match[1])
				if !says(p, match[1], true) {
					t.Errorf("the push refuses for %s, of which the plan says nothing:\n%s\n%s", match[1], text, show(p))
				}
			}
			if (err != nil) != (len(dropped) > 0) {
				t.Errorf("the push: %v %s", err, text)
			}
			for _, path := range x.want {
				if !strings.Contains(strings.Join(dropped, " "), path) || !says(without, path, false) {
					t.Errorf("%s is dropped by the push (%q), and without objects the plan says\n%s", path, dropped, show(without))
				}
			}
		})
	}
}

// says reports whether a plan has a finding that breaks about a field which is gone, with stored objects if observed is set.
func says(p *plan.Plan, path string, observed bool) bool {
	for _, f := range p.Findings {
		// Findings do not tell the keys of maps.
		above := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(f.Path), `\[\*\]`, `\.[^.\[]+`) + `($|\.|\[)`).MatchString(path)
		if (f.Rule == "FIELD_REMOVED" || f.Rule == "STRUCT_CLOSED") && above && (f.Class == plan.Breaks || !observed && f.Rule == "STRUCT_CLOSED") && (!observed || f.Objects != nil && f.Objects.Differ > 0) {
			return true
		}
	}
	return false
}
