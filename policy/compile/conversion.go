package compile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"stele.dev/stele/policy/conversion"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/wording"
)

// conversions checks the conversions of a kind, and completes their form. It tries them on generated objects only if everything
// else about them is right.
func (c *compiler) conversions(k *schemas.Kind, v cue.Value) {
	hub := k.Hub()
	if hub == nil {
		return
	}
	before := len(c.Diags)
	for i := range k.Versions {
		version := &k.Versions[i]
		if version.Conversion == nil {
			continue
		}
		said := len(c.Diags)
		x := &converting{c, k, version, hub, v.Path().String() + ".versions." + version.Name + ".conversion"}
		for i := range version.Conversion.Steps {
			x.step(i)
		}
		if len(c.Diags) == said {
			x.secrets()
		}
		if len(c.Diags) == said {
			x.tryOut()
		}
	}
	if k.Converted() && len(c.Diags) == before {
		c.selectable(k, v.Path().String())
	}
}

// converting is the conversion of a version that is checked.
type converting struct {
	*compiler
	kind         *schemas.Kind
	version, hub *schemas.Version
	path         string
}

func (x *converting) refuse(step *schemas.ConversionStep, message, hint string) {
	at := x.version.Conversion.Source
	if step != nil {
		at = step.Source
	}
	x.Add(at, x.path, message, hint)
}

// step checks the step with an index.
func (x *converting) step(i int) {
	step := &x.version.Conversion.Steps[i]
	switch step.Do {
	case schemas.StepCEL:
		x.computed(step, step.Up, x.version, x.hub)
		x.computed(step, step.Down, x.hub, x.version)
		return
	case schemas.StepDefault, schemas.StepDrop:
		x.oneSided(step)
		return
	case schemas.StepMap:
		x.values(step)
		return
	case schemas.StepRename:
		if from, to := parent(step.From[0]), parent(step.To[0]); from != to {
			x.refuse(step, fmt.Sprintf("rename leaves a field where it is, and %s is elsewhere than %s", step.To[0], step.From[0]), "write move")
			return
		}
	}
	for _, field := range step.From {
		x.exists(step, field, x.version, func(s *schemas.ConversionStep) []string { return s.To }, x.version.Conversion.Steps[:i])
	}
	for _, field := range step.To {
		x.exists(step, field, x.hub, func(s *schemas.ConversionStep) []string { return s.From }, x.version.Conversion.Steps[i+1:])
	}
}

// parent returns the path around a field.
func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".]"))] }

// exists refuses a field that neither the schema of a version has, nor another step.
func (x *converting) exists(step *schemas.ConversionStep, field string, in *schemas.Version, made func(*schemas.ConversionStep) []string, others []schemas.ConversionStep) {
	p, err := conversion.ParsePath(field)
	if err != nil {
		x.refuse(step, err.Error(), "write names of fields with dots between them, and [*] for what is in a list or a map")
		return
	}
	if _, ok := p.Node(in.Schema); ok {
		return
	}
	for i := range others {
		for _, text := range made(&others[i]) {
			if other, err := conversion.ParsePath(text); err == nil && (p.In(other) || other.In(p)) {
				return
			}
		}
	}
	x.refuse(step, fmt.Sprintf("the schema of %s has no field %s", in.Name, field), x.nearest(p, in))
}

// nearest returns a hint for a field that a schema does not have.
func (x *converting) nearest(p conversion.Path, in *schemas.Version) string {
	for i := range p {
		n, ok := p[:i].Node(in.Schema)
		if _, has := p[:i+1].Node(in.Schema); has {
			continue
		}
		if !ok || n == nil || n.Struct == nil {
			break
		}
		var known []string
		for _, f := range n.Struct.AllFields() {
			known = append(known, f.Name)
		}
		name := p[i : i+1].String()
		return wording.DidYouMean(name, known, "there are")
	}
	return ""
}

// oneSided finds out which version has the field of default or drop.
func (x *converting) oneSided(step *schemas.ConversionStep) {
	field := step.From[0]
	p, err := conversion.ParsePath(field)
	if err != nil {
		x.refuse(step, err.Error(), "write names of fields with dots between them, and [*] for what is in a list or a map")
		return
	}
	mine, own := p.Node(x.version.Schema)
	theirs, its := p.Node(x.hub.Schema)
	switch {
	case own && its && step.Do == schemas.StepDrop:
		x.refuse(step, fmt.Sprintf("%s and %s both have the field %s, so nothing is dropped", x.version.Name, x.hub.Name, field), "leave the step out")
	case !own && !its:
		x.refuse(step, fmt.Sprintf("the schemas of %s and %s have no field %s", x.version.Name, x.hub.Name, field), x.nearest(p, x.hub))
	case !own:
		step.From = nil
		mine = theirs
	case !its:
		step.To = nil
	}
	if step.Value == nil && mine != nil && (!own || !its) { // what the schema gives a field that is absent
		step.Value = slices.Clone(mine.Default)
	}
}

// values makes the names of map the values that the schema admits: a name of a number or a boolean is that.
func (x *converting) values(step *schemas.ConversionStep) {
	p, err := conversion.ParsePath(step.From[0])
	if err != nil {
		x.refuse(step, err.Error(), "write names of fields with dots between them, and [*] for what is in a list or a map")
		return
	}
	n, ok := p.Node(x.version.Schema)
	if !ok {
		n, ok = p.Node(x.hub.Schema)
	}
	if !ok {
		x.refuse(step, fmt.Sprintf("the schemas of %s and %s have no field %s", x.version.Name, x.hub.Name, step.From[0]), x.nearest(p, x.version))
		return
	}
	if n == nil || n.Kinds&schemas.StringKind != 0 {
		return
	}
	for i := range step.Values {
		var name string
		if json.Unmarshal(step.Values[i].From, &name) == nil {
			if value, err := jsonvalue.Canonical([]byte(name)); err == nil {
				step.Values[i].From = value
			}
		}
	}
}

// computed checks the expressions of one direction.
func (x *converting) computed(step *schemas.ConversionStep, fields []schemas.ComputedField, from, to *schemas.Version) {
	scope := func(objectType) (*expr.Scope, error) {
		return expr.Root().With(map[string]*celtype.Type{expr.VarSelf: conversion.SelfOf(x.kind, from)})
	}
	for i := range fields {
		f := &fields[i]
		if strings.Contains(f.Field, "[*]") {
			x.Add(f.Source, x.path, fmt.Sprintf("cel computes whole fields, and %s is in items", f.Field), "compute the list or the map: self.spec.ports.map(p, …)")
			continue
		}
		if p, err := conversion.ParsePath(f.Field); err != nil {
			x.Add(f.Source, x.path, err.Error(), "write names of fields with dots between them")
		} else if _, ok := p.Node(to.Schema); !ok {
			x.Add(f.Source, x.path, fmt.Sprintf("the schema of %s has no field %s", to.Name, f.Field), x.nearest(p, to))
		}
		if e, _ := x.expression(f.Text, x.path+"."+f.Field, f.Source, nil, []objectType{anyObject}, scope); e != nil {
			f.AST = e.Checked
		}
	}
}

// secrets refuses a conversion by which a secret of one version becomes a field of the other that is none.
func (x *converting) secrets() {
	from, to := x.version.Schema.SensitivePaths(), x.hub.Schema.SensitivePaths()
	if len(from)+len(to) == 0 {
		return
	}
	var moved []string
	for i := range x.version.Conversion.Steps {
		step := &x.version.Conversion.Steps[i]
		version, hub := conversion.Fields(step)
		moved = append(append(moved, version...), hub...)
		if len(version) == 0 || len(hub) == 0 || step.Do == schemas.StepCEL && !anySecret(version, from) && !anySecret(hub, to) && !x.readsSecret(step) {
			continue
		}
		if anySecret(version, from) != anySecret(hub, to) || step.Do == schemas.StepCEL && x.readsSecret(step) {
			x.refuse(step, fmt.Sprintf("a secret of %s or %s would become a field that is none", x.version.Name, x.hub.Name), "give the field @stele(sensitive) in both versions; cel does not read secrets")
		}
	}
	for _, side := range [][2][][]string{{from, to}, {to, from}} {
		for _, path := range side[0] {
			if !secretIn(path, moved) && !slices.ContainsFunc(side[1], func(other []string) bool { return slices.Equal(path, other) }) {
				x.refuse(nil, fmt.Sprintf("%s is @stele(sensitive) in one of %s and %s only", strings.Join(path, "."), x.version.Name, x.hub.Name), "give the field @stele(sensitive) in both versions")
			}
		}
	}
}

// readsSecret reports whether expressions of a step read secrets.
func (x *converting) readsSecret(step *schemas.ConversionStep) bool {
	reads := func(fields []schemas.ComputedField, secrets [][]string) bool {
		for i := range fields {
			selections, err := expr.SelectionsWithOptional(fields[i].AST)
			if err != nil {
				return true
			}
			for _, s := range selections {
				if s.Variable == expr.VarSelf && !s.Tested && slices.ContainsFunc(secrets, func(p []string) bool { return schemas.Overlap(p, s.Fields) }) {
					return true
				}
			}
		}
		return false
	}
	return reads(step.Up, x.version.Schema.SensitivePaths()) || reads(step.Down, x.hub.Schema.SensitivePaths())
}

// anySecret reports whether one of the fields is a secret, is in one, or has one.
func anySecret(fields []string, secrets [][]string) bool {
	return slices.ContainsFunc(secrets, func(s []string) bool { return secretIn(s, fields) })
}

// secretIn reports whether a secret is one of the fields, is in one, or has one.
func secretIn(secret []string, fields []string) bool {
	return slices.ContainsFunc(fields, func(field string) bool {
		p, err := conversion.ParsePath(field)
		return err == nil && schemas.Overlap(secret, p.Names())
	})
}
