package plans

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// differ counts where the policies show an object otherwise.
func (t *kindTrial) differ(o *Object, was, is *policy.Object, to *results) {
	at := map[string]bool{} // and whether it is a leaf
	compare("", was.Content, is.Content, at)
	for path, leaf := range at {
		d := to.difference(path)
		d.objects++
		d.leaf = d.leaf || leaf
		x := &outcome{}
		if s := t.visible(o, x); s != nil {
			if value, found := lookUp(was.Content, splitPath(path)); found && !t.isSecret(splitPath(path)) {
				s.Value = short(value)
			}
			d.samples.add(*s)
		}
	}
}

// compare adds the paths at which two values differ. A value that only one side has differs with all that is in it.
func compare(path string, was, is any, at map[string]bool) {
	if reflect.DeepEqual(was, is) {
		return
	}
	a, wasMap := was.(map[string]any)
	b, isMap := is.(map[string]any)
	x, wasList := was.([]any)
	y, isList := is.([]any)
	switch {
	case wasMap && (isMap || is == nil) || isMap && was == nil:
		if path != "" && (!wasMap || !isMap) {
			at[path] = at[path] || len(a)+len(b) == 0
		}
		for name := range a {
			next, has := b[name]
			if !has {
				next = nil
			}
			compare(join(path, name), a[name], next, at)
		}
		for name := range b {
			if _, had := a[name]; !had {
				compare(join(path, name), nil, b[name], at)
			}
		}
	case wasList && (isList || is == nil) || isList && was == nil:
		if !wasList || !isList {
			at[path] = at[path] || len(x)+len(y) == 0
		}
		for i := range max(len(x), len(y)) {
			var one, other any
			if i < len(x) {
				one = x[i]
			}
			if i < len(y) {
				other = y[i]
			}
			compare(path+"[]", one, other, at)
		}
	default:
		at[path] = true
	}
}

func join(path, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, `.[]*"\ `):
		quoted, _ := json.Marshal(name) // a string always encodes
		return path + "[" + string(quoted) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// shows are the rules of findings that say that objects are shown otherwise.
var shows = map[string]bool{
	"FIELD_REMOVED": true, "STRUCT_CLOSED": true, "DEFAULT_ADDED": true, "DEFAULT_CHANGED": true, "DEFAULT_REMOVED": true,
	"FIELD_ADDED": true, "ALTERNATIVE_REMOVED": true, "ALTERNATIVE_ADDED": true, "STRUCT_OPENED": true, "FIELD_OPTIONAL": true, "FIELD_TYPE_CHANGED": true,
}

// attachDifferences adds to the findings how many objects are shown otherwise.
func (t *kindTrial) attachDifferences(p *plan.Plan, found *results) {
	explained := map[string]bool{}
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Kind != t.is.Resource() || !shows[f.Rule] || f.Version != "" && f.Version != t.is.StorageVersion {
			continue
		}
		d := found.differ[f.Path]
		for path := range found.differ {
			if path == f.Path || below(path, f.Path) || below(f.Path, path) || mapPath(path, f.Path) {
				explained[path] = true
				if d == nil && mapPath(path, f.Path) {
					d = found.differ[path]
				}
			}
		}
		t.shownOtherwise(f, d)
	}
	for _, path := range slices.Sorted(maps.Keys(found.differ)) {
		d := found.differ[path]
		if explained[path] || !d.leaf {
			continue
		}
		f := plan.Finding{Rule: "OBJECTS_DIFFER", Class: plan.Changes, Kind: t.is.Resource(), Path: path, Evidence: plan.Observed}
		t.count(&f, d)
		p.Findings = append(p.Findings, f)
	}
}

// mapPath reports whether a path in an object is one of a finding about values of a map: spec.labels.a is
// spec.labels[*].
func mapPath(path, of string) bool {
	before, after, isMap := strings.Cut(of, "[*]")
	if !isMap || !strings.HasPrefix(path, before+".") {
		return false
	}
	rest := path[len(before)+1:]
	i := strings.IndexAny(rest, ".[")
	if i < 0 {
		return after == ""
	}
	return rest[i:] == after
}

func (t *kindTrial) count(f *plan.Finding, d *difference) {
	if f.Objects == nil {
		f.Objects = &plan.Objects{Of: t.of}
	}
	f.Objects.Differ = d.objects
	if f.Objects.Violating+f.Objects.Stuck+f.Objects.StatusStuck > 0 {
		return // the samples are those of what is refused
	}
	for _, s := range d.samples {
		f.Objects.Samples = append(f.Objects.Samples, s.Sample)
	}
}

// shownOtherwise says of a finding how many objects it shows otherwise.
func (t *kindTrial) shownOtherwise(f *plan.Finding, d *difference) {
	n := 0
	if d != nil {
		t.count(f, d)
		n = d.objects
	}
	switch f.Rule {
	case "FIELD_REMOVED", "STRUCT_CLOSED":
		if n == 0 {
			return
		}
		f.Class, f.Evidence = plan.Breaks, plan.Observed
		part, _, _ := strings.Cut(f.Path, ".")
		f.Details = append(f.Details, fmt.Sprintf("%d of %d objects have it. It is not shown any more, to anybody.", n, t.of),
			fmt.Sprintf("The next write that changes %s deletes it. A policy that has the field again shows it only in objects whose %s nobody has changed in between.", part, part))
	case "DEFAULT_ADDED", "DEFAULT_CHANGED", "DEFAULT_REMOVED":
		line := fmt.Sprintf("%d of %d objects are shown otherwise", n, t.of)
		if n == 0 {
			line += ": all have been written with a value"
		}
		f.Details = append(f.Details, line+".")
	}
}
