package kinds

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// A structPair is two structs to compare, and the nodes that they belong to.
type structPair struct {
	a, b       *schemas.Struct
	from, into schemas.Position // of the nodes
	skip       string           // a field that is compared elsewhere
}

var openStruct = &schemas.Struct{Open: true}

// object compares two structs.
func (c *comparison) object(at place, s structPair) {
	if s.a == nil {
		s.a = openStruct
	}
	if s.b == nil {
		s.b = openStruct
	}
	c.opened(at, s)
	c.limits(at, s.a.MinFields, s.b.MinFields, s.a.MaxFields, s.b.MaxFields, "field", &schemas.Node{Source: s.from}, &schemas.Node{Source: s.into})
	if was, is := mapType(s.a), mapType(s.b); was != is {
		c.as(plan.Breaks, at, difference{rule: "LIST_TYPE_CHANGED", before: was, after: is, was: s.from, is: s.into,
			message: "The struct is merged in another way."})
	}
	c.fields(at, s)
	c.keyPatterns(at, s)
	c.comparisons(at, s)
	c.conditions(at, s)
}

func mapType(s *schemas.Struct) string {
	if s.Type == "" {
		return schemas.MapGranular
	}
	return s.Type
}

// opened compares what becomes of fields that are not declared.
func (c *comparison) opened(at place, s structPair) {
	if s.a.Open == s.b.Open {
		return
	}
	if s.b.Open {
		c.add(at, difference{rule: "STRUCT_OPENED", way: gains, before: "closed", after: "open", was: s.from, is: s.into})
		return
	}
	c.add(at, difference{rule: "STRUCT_CLOSED", way: loses, before: "open", after: "closed", was: s.from, is: s.into,
		details: []string{"Fields that are not declared are hidden, and refused where clients validate strictly, as kubectl does. " + hiddenUntil(at)}})
}

// fields compares the declared fields.
func (c *comparison) fields(at place, s structPair) {
	for i := range s.a.Fields {
		f := &s.a.Fields[i]
		if f.Name == s.skip {
			continue
		}
		if is, ok := schemas.FieldNamed(s.b, f.Name); ok {
			c.field(at.field(f.Name), f, &is)
		} else {
			c.removed(at.field(f.Name), f, s.b)
		}
	}
	for i := range s.b.Fields {
		f := &s.b.Fields[i]
		if _, ok := schemas.FieldNamed(s.a, f.Name); !ok && f.Name != s.skip {
			c.added(at.field(f.Name), f, s.a)
		}
	}
}

// field compares a field that both sides declare.
func (c *comparison) field(at place, a, b *schemas.Field) {
	c.presence(at, a, b)
	c.node(at, a.Schema, b.Schema)
}

// needed reports whether objects must have the field.
func needed(f *schemas.Field) bool {
	return f.Presence == schemas.Required || f.Presence == schemas.Regular && !f.TakenFromElsewhere() && absent(f) == nil
}

// onlyDefault returns the field that a missing one takes its value from, as text.
func onlyDefault(f *schemas.Field) string {
	if f.TakenFromElsewhere() && f.Schema.From.Default {
		return f.Schema.From.String()
	}
	return ""
}

// presence compares whether a field must be set, and what it gets otherwise.
func (c *comparison) presence(at place, a, b *schemas.Field) {
	d := difference{was: a.Schema.Source, is: b.Schema.Source}
	needsNow, neededThen := needed(b), needed(a)
	was, is := missing(a), missing(b)
	if needsNow == neededThen && was == is || ofParts(a) && ofParts(b) {
		return
	}
	d.before, d.after = was, is
	switch {
	case needsNow && !neededThen:
		d.rule, d.way, d.message = "FIELD_REQUIRED", loses, "The field must be set."
		if was != "optional" {
			d.message = "The field must be set, and has no default any more."
		}
		d.details = []string{"Stored objects that lack it can be labelled and have their status written. Each write that changes the part with the field must set it."}
	case neededThen && is == "optional":
		d.rule, d.way, d.message = "FIELD_OPTIONAL", gains, "The field need not be set any more."
	case neededThen:
		d.rule, d.way, d.message = "DEFAULT_ADDED", gains, "The field need not be set any more, and gets a default."
	case was == "optional":
		d.rule, d.before, d.message = "DEFAULT_ADDED", "", "A field that is missing gets a value."
		d.details = []string{"Stored objects that lack the field are shown with the default from the push on."}
	case is == "optional":
		d.rule, d.after, d.message = "DEFAULT_REMOVED", "", "A field that is missing stays missing."
		d.details = []string{"Stored objects whose default was not written are shown without the field from the push on."}
	default:
		d.rule, d.message = "DEFAULT_CHANGED", "A field that is missing gets another value."
		d.details = []string{"Stored objects that lack the field are shown with the new default from the push on."}
	}
	if strings.HasPrefix(d.rule, "DEFAULT_") && d.way == unknown {
		c.as(plan.Changes, at, d)
		return
	}
	c.add(at, d)
}

// missing says what becomes of a missing field: "required", "optional", or its default.
func missing(f *schemas.Field) string {
	if text := onlyDefault(f); text != "" {
		return "that of " + text
	}
	if needed(f) {
		return "required"
	}
	if d := absent(f); d != nil {
		return short(string(d))
	}
	return "optional"
}

// ofParts reports whether the parts of a struct decide whether it may be missing, and what it gets then. The parts are
// compared by themselves.
func ofParts(f *schemas.Field) bool {
	return f.Presence == schemas.Regular && f.Schema.Default == nil && f.Schema.From == nil && f.Schema.Kinds == schemas.StructKind
}

// hiddenUntil says what becomes of stored fields that the schema no longer has.
func hiddenUntil(at place) string {
	part := "spec"
	if names := at.steps(); len(names) > 0 {
		part = names[0]
	}
	return fmt.Sprintf("Objects keep them, hidden, until a write changes %s; that write loses them. A label or another part of the object does not.", part)
}

// removed reports a field that the new schema does not declare.
func (c *comparison) removed(at place, f *schemas.Field, in *schemas.Struct) {
	if p := patternFor(in, f.Name); p != nil {
		c.field(at, f, &schemas.Field{Name: f.Name, Presence: schemas.Optional, Schema: p.Value})
		return
	}
	if in.Open {
		c.add(at, difference{rule: "FIELD_REMOVED", way: gains, before: describeField(f), was: f.Schema.Source,
			message: "The field is not declared any more, and is kept with any value."})
		return
	}
	part := at.steps()[0]
	c.add(at, difference{
		rule: "FIELD_REMOVED", way: loses, before: describeField(f), was: f.Schema.Source, message: "The field is no longer in the schema.",
		details: []string{
			fmt.Sprintf("It is hidden from everybody, and kept until a write changes %s; that write loses it. A rollback before that shows it again, and the history has it.", part),
			"Clients that still send it get a warning, or are refused if they validate strictly, as kubectl does.",
		},
		fix: []string{"The server refuses the push if stored objects have the field. Push with --drop-fields if nobody needs it."},
	})
	if at.when == "" {
		c.lost = append(c.lost, lone{parent(at), *f, len(c.found) - 1})
	}
}

// added reports a field that the old schema did not declare.
func (c *comparison) added(at place, f *schemas.Field, in *schemas.Struct) {
	if p := patternFor(in, f.Name); p != nil {
		c.field(at, &schemas.Field{Name: f.Name, Presence: schemas.Optional, Schema: p.Value}, f)
		return
	}
	d := difference{rule: "FIELD_ADDED", way: gains, after: describeField(f), is: f.Schema.Source, message: "The field is new."}
	switch {
	case needed(f):
		d.rule, d.way, d.message = "FIELD_REQUIRED", loses, "The field is new, and must be set."
		d.details = []string{"Stored objects that lack it can be labelled and have their status written. Each write that changes the part with the field must set it."}
	case in.Open:
		d.way, d.message = loses, "The field is declared now; until now it was kept with any value."
	case absent(f) != nil:
		d.details = []string{"Stored objects are shown with the default from the push on."}
	}
	c.add(at, d)
	if at.when == "" {
		c.gained = append(c.gained, lone{parent(at), *f, len(c.found) - 1})
	}
}

// patternFor returns the pattern of a map that constrains a key, if there is exactly one.
func patternFor(s *schemas.Struct, key string) (found *schemas.KeyPattern) {
	for i := range s.Patterns {
		if c, err := program.NewChecker(s.Patterns[i].Key); err == nil && c.AdmitsKey(key) {
			if found != nil {
				return nil
			}
			found = &s.Patterns[i]
		}
	}
	return found
}

// keyPatterns compares the patterns of maps.
func (c *comparison) keyPatterns(at place, s structPair) {
	var lost, gained []schemas.KeyPattern
	for _, p := range s.a.Patterns {
		if i := slices.IndexFunc(s.b.Patterns, func(q schemas.KeyPattern) bool { return sameMeaning(p.Key, q.Key) }); i >= 0 {
			c.node(at.values(), p.Value, s.b.Patterns[i].Value)
		} else {
			lost = append(lost, p)
		}
	}
	for _, q := range s.b.Patterns {
		if !slices.ContainsFunc(s.a.Patterns, func(p schemas.KeyPattern) bool { return sameMeaning(p.Key, q.Key) }) {
			gained = append(gained, q)
		}
	}
	if len(lost) == 1 && len(gained) == 1 {
		key := at.values()
		key.key = true
		c.node(key, lost[0].Key, gained[0].Key)
		c.node(at.values(), lost[0].Value, gained[0].Value)
		return
	}
	say := func(p schemas.KeyPattern) string {
		return short("[" + describe(p.Key) + "]: " + describe(p.Value))
	}
	for _, p := range lost {
		d := difference{rule: "FIELD_REMOVED", way: loses, before: say(p), was: position(p.Value.Source, s.from), is: s.into,
			message: "Keys of the map are no longer admitted."}
		if s.b.Open {
			d.rule, d.way, d.message = "CONSTRAINT_CHANGED", gains, "Keys of the map may have any value."
		}
		c.add(at.values(), d)
	}
	for _, p := range gained {
		d := difference{rule: "FIELD_ADDED", way: gains, after: say(p), was: s.from, is: position(p.Value.Source, s.into),
			message: "The map may have further keys."}
		if s.a.Open {
			d.rule, d.way, d.message = "CONSTRAINT_CHANGED", loses, "Keys of the map may not have any value."
		}
		c.add(at.values(), d)
	}
}

// comparisons compares the bounds that are other fields.
func (c *comparison) comparisons(at place, s structPair) {
	same := func(p, q schemas.Comparison) bool { return p.Field == q.Field && p.Op == q.Op && p.Other == q.Other }
	rest := func(all, others []schemas.Comparison) (rest []schemas.Comparison) {
		for _, p := range all {
			if !slices.ContainsFunc(others, func(q schemas.Comparison) bool { return same(p, q) }) {
				rest = append(rest, p)
			}
		}
		return rest
	}
	lost, gained := rest(s.a.Comparisons, s.b.Comparisons), rest(s.b.Comparisons, s.a.Comparisons)
	for _, p := range lost {
		d := difference{rule: "CONSTRAINT_CHANGED", way: gains, before: p.Op + p.Other, was: position(p.Source, s.from), is: s.into,
			message: "The field is no longer compared with another one."}
		if i := slices.IndexFunc(gained, func(q schemas.Comparison) bool { return q.Field == p.Field && q.Other == p.Other }); i >= 0 {
			q := gained[i]
			gained = slices.Delete(gained, i, i+1)
			d.after, d.is, d.message = q.Op+q.Other, position(q.Source, s.into), "The field is compared with another one in another way."
			d.way = operatorsWay(p.Op, q.Op)
		}
		c.add(at.field(p.Field), d)
	}
	for _, q := range gained {
		c.add(at.field(q.Field), difference{rule: "CONSTRAINT_CHANGED", way: loses, after: q.Op + q.Other, was: s.from, is: position(q.Source, s.into),
			message: "The field is compared with another one."})
	}
}

// operatorsWay compares two operators by which of less, equal and greater they admit.
func operatorsWay(was, is string) direction {
	admits := map[string]int{"<": 1, "==": 2, "<=": 3, ">": 4, "!=": 5, ">=": 6}
	a, b := admits[was], admits[is]
	var d direction
	if a&^b != 0 {
		d |= loses
	}
	if b&^a != 0 {
		d |= gains
	}
	return d
}

// conditions compares the fields that depend on other fields.
func (c *comparison) conditions(at place, s structPair) {
	var lost, gained []schemas.Condition
	groups := func(all []schemas.Condition) (names []string, by map[string]schemas.Condition) {
		by = map[string]schemas.Condition{}
		for _, x := range all {
			name := guardText(x.When)
			if was, ok := by[name]; ok {
				x.Fields = append(slices.Clip(was.Fields), x.Fields...)
			} else {
				names = append(names, name)
			}
			by[name] = x
		}
		return names, by
	}
	names, was := groups(s.a.Conditions)
	others, is := groups(s.b.Conditions)
	for _, name := range names {
		x := was[name]
		y, ok := is[name]
		if !ok {
			lost = append(lost, x)
			continue
		}
		inside := at
		inside.when += " if " + name
		c.fields(inside, structPair{a: &schemas.Struct{Fields: x.Fields}, b: &schemas.Struct{Fields: y.Fields}, from: x.Source, into: y.Source})
	}
	for _, name := range others {
		if _, ok := was[name]; !ok {
			gained = append(gained, is[name])
		}
	}
	for _, x := range lost {
		i := slices.IndexFunc(gained, func(y schemas.Condition) bool { return sameFields(x.Fields, y.Fields) })
		if i < 0 {
			c.condition(at, s, x, false)
			continue
		}
		y := gained[i]
		gained = slices.Delete(gained, i, i+1)
		d := difference{rule: "CONSTRAINT_CHANGED", before: "if " + guardText(x.When), after: "if " + guardText(y.When), was: position(x.Source, s.from), is: position(y.Source, s.into),
			message: "The condition of " + fieldNames(x.Fields) + " differs."}
		c.decideConditions(at, d, s)
	}
	for _, x := range gained {
		c.condition(at, s, x, true)
	}
}

// condition reports the fields of a condition that only one side has.
func (c *comparison) condition(at place, s structPair, x schemas.Condition, added bool) {
	when := " if " + guardText(x.When)
	here, there := s.b, s.a
	if !added {
		here, there = s.a, s.b
	}
	for _, f := range x.Fields {
		inside := at.field(f.Name)
		d := difference{rule: "CONSTRAINT_CHANGED", message: "What the field may be under this condition differs."}
		text := describeField(&f) + when
		other, known := anyField(there, f.Name)
		unconditional, _ := schemas.FieldNamed(here, f.Name)
		switch {
		case added && !known:
			d.rule, d.way, d.message = "FIELD_ADDED", gains, "The field is new, under a condition."
			if needed(&f) {
				d.rule, d.way, d.message = "FIELD_REQUIRED", loses, "The field is new, and must be set under a condition."
			}
		case !added && !known:
			d.rule, d.way, d.message = "FIELD_REMOVED", loses, "The field is no longer in the schema; it depended on a condition."
			d.details = []string{hiddenUntil(inside)}
		case added && needed(&f) && !needed(&other):
			d.rule, d.way, d.message = "FIELD_REQUIRED", loses, "The field must be set under a condition."
		case !added && needed(&f) && !needed(&other) && unconditional.Schema != nil:
			d.rule, d.way, d.message = "FIELD_OPTIONAL", gains, "The field need not be set any more under a condition."
		}
		source := position(f.Schema.Source, x.Source)
		if added {
			d.after, d.is, d.was = text, source, s.from
		} else {
			d.before, d.was, d.is = text, source, s.into
		}
		if d.rule == "CONSTRAINT_CHANGED" {
			c.decideConditions(at, d, s)
			c.found[len(c.found)-1].Path = inside.String()
			continue
		}
		c.add(inside, d)
	}
}

// decideConditions adds a finding about conditions whose direction generated structs tell. Apart from the conditions
// they are those of the old schema, so that other differences do not decide.
func (c *comparison) decideConditions(at place, d difference, s structPair) {
	other := *s.a
	other.Conditions = s.b.Conditions
	c.decide(at, d, &schemas.Node{Kinds: schemas.StructKind, Struct: s.a}, &schemas.Node{Kinds: schemas.StructKind, Struct: &other})
}

// anyField returns a field that is declared, or that a condition adds.
func anyField(s *schemas.Struct, name string) (schemas.Field, bool) {
	for _, f := range s.EveryField() {
		if f.Name == name {
			return f, true
		}
	}
	return schemas.Field{}, false
}

func sameFields(a, b []schemas.Field) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(f schemas.Field) bool {
		i := slices.IndexFunc(b, func(g schemas.Field) bool { return g.Name == f.Name })
		return i < 0 || b[i].Presence != f.Presence || !schemas.Same(f.Schema, b[i].Schema)
	})
}

func fieldNames(fields []schemas.Field) string {
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// A lone is a field that only one side has.
type lone struct {
	parent  string
	field   schemas.Field
	finding int
}

func parent(at place) string { return strings.Join(at.steps()[:len(at.steps())-1], "\x00") }

// renames marks removed and added fields that look like one renamed field: the same parent, the same schema, and no
// other candidate.
func (c *comparison) renames() {
	alike := func(a, b lone) bool {
		x, y := *a.field.Schema, *b.field.Schema
		x.Message, y.Message = "", ""
		return a.parent == b.parent && schemas.Same(&x, &y) && bytes.Equal(x.Default, y.Default)
	}
	only := func(of lone, all []lone) *lone {
		var found *lone
		for i := range all {
			if alike(of, all[i]) {
				if found != nil {
					return nil
				}
				found = &all[i]
			}
		}
		return found
	}
	for i := range c.lost {
		was := &c.lost[i]
		is := only(*was, c.gained)
		if is == nil || only(*is, c.lost) != was {
			continue
		}
		before, after := was.field.Name, is.field.Name
		removed, added := &c.found[was.finding], &c.found[is.finding]
		removed.With, added.With = added.Path, removed.Path
		removed.Details = append(removed.Details, fmt.Sprintf("This and %s look like a rename: both have the same schema at the same place. The values of %s are not copied.", added.Path, before))
		removed.Fix = []string{
			fmt.Sprintf("To rename the field, push three times. First add %s as an optional field beside %s, and let clients write both.", after, before),
			fmt.Sprintf("Then copy %s into %s in each object, and push the schema in which %s is as it shall be.", removed.Path, added.Path, after),
			fmt.Sprintf("Last remove %s, when no object and no client needs it.", before),
		}
		added.Details = append(added.Details, fmt.Sprintf("This and the removed %s look like a rename.", removed.Path))
	}
}
