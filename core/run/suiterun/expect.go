package suiterun

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"stele.dev/stele/policy/suites"
	"stele.dev/stele/schemas/wording"
)

// compare returns what of an answer is not as expected, each as a sentence.
func compare(e *suites.Expect, a *Answer) (failures []string) {
	fail := func(format string, args ...any) { failures = append(failures, fmt.Sprintf(format, args...)) }
	if wanted, ok := outcome(e, a); !ok {
		fail("expected %s, and got %s", wanted, a.outcome())
	}
	failures = append(failures, compareFlow(e, a)...)
	switch {
	case e.Audit == "":
	case a.Audit == nil:
		fail("expected the audit level %s, and the request was refused in stage %s, before it had one", e.Audit, a.Stage)
	case e.Audit != a.Audit.Level:
		fail("expected the audit level %s, and got %s", e.Audit, a.Audit)
	}
	for _, pattern := range e.Message {
		if re := regexp.MustCompile(pattern); a.Code < 400 {
			fail("expected a message that matches %q, and the request was allowed", pattern)
		} else if !re.MatchString(a.Message) {
			fail("expected a message that matches %q, and got: %s", pattern, a.Message)
		}
	}
	failures = append(failures, compareFields(e, a)...)
	if e.Object != nil {
		var wanted any
		_ = decode(e.Object, &wanted)
		if a.Object == nil {
			fail("expected an object, and the answer has none")
		} else {
			compareValues("", wanted, a.Object, fail)
		}
	}
	if e.Mutations != nil && !slices.Equal(*e.Mutations, a.Mutations) {
		fail("expected the object to be changed by %s, and it was by %s", listText(*e.Mutations), listText(a.Mutations))
	}
	if e.Warnings != nil {
		compareWarnings(*e.Warnings, a.Warnings, fail)
	}
	if e.Names != nil {
		wanted := slices.Sorted(slices.Values(*e.Names))
		if !a.listed {
			fail("expected a list of objects, and the answer is none")
		} else if !slices.Equal(wanted, a.Names) {
			fail("expected the objects %s, and got %s", listText(wanted), listText(a.Names))
		}
	}
	return failures
}

// compareFlow compares the flow that is expected.
func compareFlow(e *suites.Expect, a *Answer) (failures []string) {
	if e.FlowSchema == "" && e.PriorityLevel == "" {
		return nil
	}
	if a.Flow == nil {
		return []string{"expected a flow, and the request was refused in stage " + a.Stage + ", before it had one"}
	}
	if e.FlowSchema != "" && e.FlowSchema != a.Flow.Schema {
		failures = append(failures, fmt.Sprintf("expected the flow schema %s, and got %s (%s)", e.FlowSchema, a.Flow.Schema, a.Flow))
	}
	if e.PriorityLevel != "" && e.PriorityLevel != a.Flow.PriorityLevel {
		failures = append(failures, fmt.Sprintf("expected the priority level %s, and got %s, of the flow schema %s", e.PriorityLevel, a.Flow.PriorityLevel, a.Flow.Schema))
	}
	return failures
}

// outcome says what is expected of code, stage and rule, and reports whether the answer is so.
func outcome(e *suites.Expect, a *Answer) (wanted string, ok bool) {
	ok = true
	var parts []string
	add := func(is bool, text string) { parts, ok = append(parts, text), ok && is }
	if e.Allowed != nil {
		add(*e.Allowed == (a.Code < 400), map[bool]string{true: "it to be allowed", false: "it to be refused"}[*e.Allowed])
	}
	if e.Code != 0 {
		add(e.Code == a.Code, fmt.Sprint(e.Code))
	}
	if e.Stage != "" {
		add(e.Stage == a.Stage, "in stage "+e.Stage)
	}
	if e.Rule != nil {
		if *e.Rule == "" {
			add(len(a.Rules) == 0, "by no rule")
		} else {
			add(slices.ContainsFunc(a.Rules, func(r Rule) bool { return r.ID == *e.Rule }), "by "+*e.Rule)
		}
	}
	return strings.Join(parts, " "), ok
}

// outcome describes code, stage and rule.
func (a *Answer) outcome() string {
	text := fmt.Sprint(a.Code)
	if a.Stage != "" {
		text += " in stage " + a.Stage
	}
	var rules []string
	for _, r := range a.Rules {
		rules = append(rules, r.ID+wording.At(r.Source))
	}
	if len(rules) > 0 {
		text += " by " + strings.Join(rules, ", ")
	}
	if a.Message != "" {
		text += ": " + a.Message
	}
	return text
}

func compareFields(e *suites.Expect, a *Answer) (failures []string) {
	if e.Fields == nil {
		return nil
	}
	for _, path := range slices.Sorted(maps.Keys(e.Fields)) {
		message, is := a.Fields[path]
		switch pattern := e.Fields[path]; {
		case !is:
			failures = append(failures, fmt.Sprintf("expected %s to be wrong, and it is not", path))
		case !regexp.MustCompile(pattern).MatchString(message):
			failures = append(failures, fmt.Sprintf("expected a message about %s that matches %q, and got: %s", path, pattern, message))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(a.Fields)) {
		if _, wanted := e.Fields[path]; !wanted {
			failures = append(failures, fmt.Sprintf("%s is wrong, too: %s", path, a.Fields[path]))
		}
	}
	return failures
}

// compareWarnings finds a warning for each pattern, and a pattern for each warning.
func compareWarnings(patterns, warnings []string, fail func(string, ...any)) {
	left := slices.Clone(warnings)
	for _, pattern := range patterns {
		i := slices.IndexFunc(left, regexp.MustCompile(pattern).MatchString)
		if i < 0 {
			fail("expected a warning that matches %q, and there is none", pattern)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, w := range left {
		fail("there is a warning that is not expected: %s", w)
	}
}

// compareValues compares what is expected of a value with the value. Structs may have more fields; null is
// a field that is not set.
func compareValues(path string, wanted, got any, fail func(string, ...any)) {
	at := path
	at = cmp.Or(at, "the object")
	switch w := wanted.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			fail("expected %s to be a struct, and it is %s", at, valueText(got))
			return
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			below := strings.TrimPrefix(path+"."+key, ".")
			value, is := g[key]
			if w[key] == nil && value == nil {
				continue
			}
			if is {
				compareValues(below, w[key], value, fail)
			} else {
				fail("expected %s to be %s, and it is not set", below, valueText(w[key]))
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			fail("expected %s to be %s, and it is %s", at, valueText(wanted), valueText(got))
			return
		}
		for i := range w {
			compareValues(fmt.Sprintf("%s[%d]", path, i), w[i], g[i], fail)
		}
	default:
		if !sameScalar(wanted, got) {
			fail("expected %s to be %s, and it is %s", at, valueText(wanted), valueText(got))
		}
	}
}

func sameScalar(a, b any) bool {
	x, xNumber := a.(json.Number)
	y, yNumber := b.(json.Number)
	if xNumber && yNumber {
		p, err1 := x.Float64()
		q, err2 := y.Float64()
		_, wholeX := new(big.Int).SetString(x.String(), 10)
		_, wholeY := new(big.Int).SetString(y.String(), 10)
		return x == y || err1 == nil && err2 == nil && p == q && !(wholeX && wholeY)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func valueText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

func listText(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// decode decodes JSON and keeps numbers as they are written.
func decode(text []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	return d.Decode(into)
}

// maxWhy is the number of considered rules that are shown of a stage.
const maxWhy = 10

// consideredRules lists the rules that the last stages considered.
func (a *Answer) consideredRules() (lines []string) {
	for i := range a.Stages {
		s := &a.Stages[i]
		if s.Name != a.Stage && (s.Name != "authorization" || a.Stage != "conditions" && a.Stage != "") {
			continue
		}
		for j, c := range s.Considered {
			if j == maxWhy {
				lines = append(lines, fmt.Sprintf("… and %d more rules in stage %s", len(s.Considered)-j, s.Name))
				break
			}
			lines = append(lines, c.Rule+wording.At(c.Source)+": "+c.Verdict)
		}
	}
	return lines
}
