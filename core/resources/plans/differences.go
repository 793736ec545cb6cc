package plans

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// differ counts where the policies show an object otherwise.
func (t *kindTrial) differ(o *Object, was, is *policy.Object, to *results) {
	nodes := []*schemas.Node{t.from.version.Schema, t.to.version.Schema}
	t.drop(o, was, nodes, to)
	for path, x := range compareValues(nodes, was.Content, is.Content) {
		d := to.difference(path)
		d.objects++
		d.leaf = d.leaf || x.leaf
		if s := t.sample(o, &outcome{}); s != nil {
			if value, found := jsonvalue.At(was.Content, x.steps...); found && !t.isSecret(x.steps) {
				s.Value = short(value)
			}
			d.samples.add(*s)
		}
	}
}

// drop counts the fields of an object that the new policy does not have: those for which the server refuses a push.
func (t *kindTrial) drop(o *Object, was *policy.Object, nodes []*schemas.Node, to *results) {
	unknown, _, err := t.to.version.Program.TryPrepare(copyOf(was.Content))
	if err != nil {
		return // an object that cannot be decoded is a failure of its own
	}
	seen := map[string]bool{}
	for _, at := range unknown {
		path := spotOf(nodes, was.Content, jsonvalue.FieldSteps(at)).path
		if seen[path] {
			continue
		}
		seen[path] = true
		d := to.dropped[path]
		if d == nil {
			d = &difference{samples: make(samples, 0, to.room)}
			to.dropped[path] = d
		}
		d.objects++
		if s := t.sample(o, &outcome{}); s != nil {
			d.samples.add(*s)
		}
	}
}

// attachDropped says of each field that stored objects would lose how many have it, in the finding about it or in one of its own, whatever made
// the schema lose it: what a push refuses, the plan has said.
func (t *kindTrial) attachDropped(p *plan.Plan, found *results) {
	for _, path := range slices.Sorted(maps.Keys(found.dropped)) {
		i := slices.IndexFunc(p.Findings, func(f plan.Finding) bool {
			return f.Kind == t.is.Resource() && (f.Rule == "FIELD_REMOVED" || f.Rule == "STRUCT_CLOSED") && (f.Path == path || isBelow(path, f.Path))
		})
		if i < 0 {
			p.Findings = append(p.Findings, plan.Finding{Rule: "FIELD_REMOVED", Kind: t.is.Resource(), Path: path, Message: "The schema of the objects that have the field has it no longer."})
			i = len(p.Findings) - 1
		}
		if f := &p.Findings[i]; f.Objects == nil || f.Objects.Differ == 0 {
			t.shownOtherwise(f, found.dropped[path])
		}
	}
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
			if path == f.Path || isBelow(path, f.Path) || isBelow(f.Path, path) {
				explained[path] = true
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
	case "DEFAULT_ADDED", "DEFAULT_CHANGED", "DEFAULT_REMOVED":
		line := fmt.Sprintf("%d of %d objects are shown otherwise", n, t.of)
		if n == 0 {
			line += ": all have been written with a value"
		}
		f.Details = append(f.Details, line+".")
	}
}

// short returns a value as JSON; nil if it is long.
func short(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil || len(text) > maxValue {
		return nil
	}
	return text
}
