package suiterun

import (
	"maps"
	"regexp"
	"slices"

	"stele.dev/stele/policy/suites"
)

// source is the end of a message about a rule: its file and line, which change more often than the message.
var source = regexp.MustCompile(`\([^\s()]+:[0-9]+\)`)

// Expected returns the fields of expect that would make the test pass: those that the test has, as the answer has them; nil for a field that the answer cannot have. For
// a test that expects nothing they are code, stage, rule and message.
func (r *Result) Expected() map[string]any {
	e, a := &r.Test.Expect, r.Answer
	set := map[string]any{}
	all := e.Empty()
	if e.Allowed != nil && *e.Allowed != (a.Code < 400) {
		set["allowed"] = a.Code < 400
	}
	if e.Code != 0 && e.Code != a.Code || all {
		set["code"] = a.Code
	}
	if e.Stage != "" && e.Stage != a.Stage || all && a.Stage != "" {
		set["stage"] = a.Stage
		if a.Stage == "" {
			set["stage"] = nil // no stage refuses
		}
	}
	if _, ok := outcome(&suites.Expect{Rule: e.Rule}, a); !ok || all && len(a.Rules) > 0 {
		rule := ""
		if len(a.Rules) > 0 {
			rule = a.Rules[0].ID
		}
		set["rule"] = rule
	}
	if f := a.Flow; f != nil && e.FlowSchema != "" && e.FlowSchema != f.Schema {
		set["flowSchema"] = f.Schema
	}
	if f := a.Flow; f != nil && e.PriorityLevel != "" && e.PriorityLevel != f.PriorityLevel {
		set["priorityLevel"] = f.PriorityLevel
	}
	if a.Audit != nil && e.Audit != "" && e.Audit != a.Audit.Level {
		set["audit"] = a.Audit.Level
	}
	if len(e.Message) > 0 && a.Code >= 400 && !matchesAll(e.Message, a.Message) || all && a.Code >= 400 && len(a.Fields) == 0 {
		set["message"] = pattern(a.Message)
	} else if len(e.Message) > 0 && a.Code < 400 {
		set["message"] = nil
	}
	if e.Fields != nil && len(compareFields(e, a)) > 0 || all && len(a.Fields) > 0 {
		fields := map[string]any{}
		for path, message := range a.Fields {
			fields[path] = pattern(message)
		}
		set["fields"] = fields
	}
	for _, value := range set {
		if value == nil && e.Code == 0 {
			set["code"] = a.Code // something must be expected
		}
	}
	if e.Object != nil {
		r.expectedObject(set)
	}
	if e.Mutations != nil && !slices.Equal(*e.Mutations, r.Answer.Mutations) {
		set["mutations"] = append([]string{}, r.Answer.Mutations...)
	}
	if e.Warnings != nil {
		different := false
		compareWarnings(*e.Warnings, a.Warnings, func(string, ...any) { different = true })
		if different {
			list := []any{}
			for _, w := range a.Warnings {
				list = append(list, pattern(w))
			}
			set["warnings"] = list
		}
	}
	if e.Names != nil && a.listed && !slices.Equal(slices.Sorted(slices.Values(*e.Names)), a.Names) {
		set["names"] = append([]string{}, a.Names...)
	}
	return set
}

func matchesAll(patterns []string, message string) bool {
	return !slices.ContainsFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(message) })
}

// pattern returns a regular expression that matches a message, wherever its rule is written.
func pattern(message string) string {
	text, from := "", 0
	for _, at := range source.FindAllStringIndex(message, -1) {
		text += regexp.QuoteMeta(message[from:at[0]]) + ".*"
		from = at[1]
	}
	return text + regexp.QuoteMeta(message[from:])
}

// expectedObject sets the object that the answer has: the fields that the test names, or all but what the server sets if it
// names none.
func (r *Result) expectedObject(set map[string]any) {
	var wanted map[string]any
	if decode(r.Test.Expect.Object, &wanted) != nil || r.Answer.Object == nil {
		return
	}
	different := false
	compareValues("", wanted, r.Answer.Object, func(string, ...any) { different = true })
	switch {
	case len(wanted) == 0:
		object := maps.Clone(r.Answer.Object)
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			delete(object, name)
		}
		set["object"] = object
	case different:
		set["object"] = projected(wanted, r.Answer.Object)
	}
}

// projected returns the parts of a value that another one has.
func projected(wanted, got any) any {
	w, ok := wanted.(map[string]any)
	g, is := got.(map[string]any)
	if !ok || !is {
		return got
	}
	next := map[string]any{}
	for key := range w {
		if value, has := g[key]; has {
			next[key] = projected(w[key], value)
		} else if w[key] == nil {
			next[key] = nil
		}
	}
	return next
}
