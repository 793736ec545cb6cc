package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"stele.dev/stele/policy/conversion"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
	"stele.dev/stele/schemas/wording"
)

// How many valid objects of each version are tried, and how many are generated to find them. Objects that CUE itself checks take
// a thousand times as long.
const (
	triedObjects     = 300
	generatedObjects = 3000
	triedByCUE       = 20
	generatedByCUE   = 100
	// maxLosses is how many findings there are for one conversion.
	maxLosses = 5
)

// These leave out of a finding what differs from example to example.
var (
	indexes = regexp.MustCompile(`\[\d+\]`)
	quotes  = regexp.MustCompile(`: [^:]*$|"(?:[^"\\]|\\.)*"`)
)

// side is one version of a conversion that is tried.
type side struct {
	*schemas.Version
	program *program.Program
	steps   []sideStep
}

// sideStep is a step with its fields in one version.
type sideStep struct {
	*schemas.ConversionStep
	fields []conversion.Path
}

// trial tries the conversion of a version on generated objects of both sides.
type trial struct {
	*converting
	mine, hub side
	up, down  *conversion.Way
	said      map[string]bool
	repeated  int // objects that were converted several times
}

// tryOut converts generated objects of the version to the hub and back, and the reverse. What is lost is an error with an example.
func (x *converting) tryOut() {
	loaded, err := conversion.New(x.kind, x.version, x.hub)
	if err != nil {
		x.refuse(nil, err.Error(), "")
		return
	}
	t := &trial{converting: x, said: map[string]bool{}}
	for _, s := range []struct {
		*side
		of *schemas.Version
	}{{&t.mine, x.version}, {&t.hub, x.hub}} {
		s.Version = s.of
		if s.program, err = program.New(s.of.Schema); err != nil {
			x.refuse(nil, err.Error(), "")
			return
		}
	}
	t.up = conversion.NewWay(loaded, nil, x.version.Schema, t.hub.program)
	t.down = conversion.NewWay(nil, loaded, x.hub.Schema, t.mine.program)
	for i := range x.version.Conversion.Steps {
		step := &x.version.Conversion.Steps[i]
		version, hub := conversion.Fields(step)
		t.mine.steps = append(t.mine.steps, sideStep{step, parsed(version)})
		t.hub.steps = append(t.hub.steps, sideStep{step, parsed(hub)})
	}
	t.from(&t.mine, t.up, &t.hub, t.down)
	t.from(&t.hub, t.down, &t.mine, t.up)
}

func parsed(texts []string) (paths []conversion.Path) {
	for _, text := range texts {
		if p, err := conversion.ParsePath(text); err == nil { // they were parsed before
			paths = append(paths, p)
		}
	}
	return paths
}

// selectable refuses selectable fields whose value is another one in the stored version: objects are selected as they are stored.
func (c *compiler) selectable(k *schemas.Kind, path string) {
	storage, _ := k.Version(k.StorageVersion)
	if storage == nil {
		return // refused before
	}
	to, err := program.New(storage.Schema)
	if err != nil {
		c.Add(k.Source, path, err.Error(), "")
		return
	}
	for i := range k.Versions {
		v := &k.Versions[i]
		if len(v.SelectableFields) == 0 || schemas.Same(v.Schema, storage.Schema) && schemas.SameConversion(v.Conversion, storage.Conversion) {
			continue
		}
		way, at, err := wayTo(k, v, storage, to)
		if err != nil {
			c.Add(at, path, err.Error(), "")
			continue
		}
		for _, f := range v.SelectableFields {
			if moved, ok := way.Field(strings.TrimPrefix(f, ".")); !ok || strings.Contains(moved, "[") {
				c.Add(at, path+".versions."+v.Name+".conversion", fmt.Sprintf("the field %s of %s cannot be selected by, because the conversion makes another value of it", f, v.Name), "select by fields that are the same in each version, or are renamed or moved")
			}
		}
	}
}

// wayTo returns the way from a version to another, whose program is given, and the position of a conversion on it.
func wayTo(k *schemas.Kind, v, other *schemas.Version, to *program.Program) (way *conversion.Way, at schemas.Position, err error) {
	var loaded [2]*conversion.Conversion
	for i, side := range []*schemas.Version{other, v} {
		if side.Conversion == nil {
			continue
		}
		at = side.Conversion.Source
		if loaded[i], err = conversion.New(k, side, k.Hub()); err != nil {
			return nil, at, err
		}
	}
	return conversion.NewWay(loaded[1], loaded[0], v.Schema, to), at, nil
}

// from tries objects of one side.
func (t *trial) from(a *side, there *conversion.Way, b *side, back *conversion.Way) {
	tried, generated := triedObjects, generatedObjects
	if a.program.Asks() || b.program.Asks() {
		tried, generated = triedByCUE, generatedByCUE
	}
	rng := rand.New(rand.NewPCG(1, 2))
	maker := samples.Maker{Rand: rng}
	for _, x := range samples.Of(a.Schema) {
		t.try(a, there, b, back, x)
	}
	for i := 0; i < generated && tried > 0 && len(t.said) < maxLosses; i++ {
		maker.Full = []int{0, 50, 90, 100}[i%4]
		x, ok := maker.Witness(a.Schema).(map[string]any)
		if !ok {
			continue
		}
		if t.try(a, there, b, back, x) {
			tried--
		}
		for _, nearby := range t.separated(a, x) {
			t.try(a, there, b, back, nearby)
		}
	}
}

// separated returns an object with texts that have the separators of steps.
func (t *trial) separated(a *side, x map[string]any) (list []map[string]any) {
	for _, s := range a.steps {
		if s.Separator == "" {
			continue
		}
		for _, p := range s.fields {
			changed, _ := jsonvalue.Clone(x).(map[string]any)
			if p.Replace(changed, func(v any) any {
				if text, ok := v.(string); ok {
					return text + s.Separator + "x"
				}
				return v
			}) {
				list = append(list, changed)
			}
		}
	}
	return list
}

// try converts an object and converts it back. It returns false if the version does not admit the object.
func (t *trial) try(a *side, there *conversion.Way, b *side, back *conversion.Way, x map[string]any) bool {
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(x, name)
	}
	if unknown, _ := a.program.Prepare(x); len(unknown) > 0 || len(a.program.Validate(x)) > 0 {
		return false
	}
	y, _ := jsonvalue.Clone(x).(map[string]any)
	if err := there.Convert(y); err != nil {
		why, step := t.explain(err)
		t.found(fmt.Sprintf("an object of %s cannot be converted to %s: %s", a.Name, b.Name, why), x, step, "narrow the schema, or convert such objects as well")
		return true
	}
	if at := t.unstable(there, x, y); at != "" {
		t.found(fmt.Sprintf("%s of %s depends on the order of a map", at, b.Name), x, t.stepAt(b, at), "the order of a map that an expression makes is another one each time: make a list, or sort")
		return true
	}
	complete, _ := jsonvalue.Clone(y).(map[string]any)
	b.program.Prepare(complete)
	if errs := b.program.Validate(complete); len(errs) > 0 {
		t.found(fmt.Sprintf("an object of %s becomes one that %s refuses: %v", a.Name, b.Name, errs[0]), x, t.stepAt(b, errs[0].Field), "give both versions the same bounds, or convert the value")
		return true
	}
	if at, is, _ := firstDifference("", complete, y); at != "" {
		t.found(fmt.Sprintf("an object of %s lacks %s in %s, where the schema has a default", a.Name, at, b.Name), x, nil,
			fmt.Sprintf("{default: {field: %q, value: %s}}, or drop if it has other values", at, text(is, 80)))
		return true
	}
	z, _ := jsonvalue.Clone(y).(map[string]any)
	if err := back.Convert(z); err != nil {
		why, step := t.explain(err)
		t.found(fmt.Sprintf("an object of %s cannot be converted from %s back: %s", a.Name, b.Name, why), x, step, "narrow the schema, or convert such objects as well")
		return true
	}
	a.program.Prepare(z)
	was, _ := jsonvalue.Clone(x).(map[string]any)
	a.tidy(was, z)
	if at, before, after := firstDifference("", was, z); at != "" {
		t.lost(a, b, at, before, after, x)
	}
	return true
}

// How often an object is converted to find out that the result depends on the order of a map, and how many objects are.
const (
	repeatedObjects = 100
	repetitions     = 64
)

// unstable converts an object several times, and returns a field that is not always the same. Go iterates over a map that an expression
// makes in another order each time, so that replicas would disagree.
func (t *trial) unstable(there *conversion.Way, x, converted map[string]any) (field string) {
	if t.repeated >= repeatedObjects || !slices.ContainsFunc(t.version.Conversion.Steps, func(s schemas.ConversionStep) bool { return s.Do == schemas.StepCEL }) {
		return ""
	}
	t.repeated++
	for range repetitions {
		again, _ := jsonvalue.Clone(x).(map[string]any)
		if err := there.Convert(again); err != nil {
			continue
		}
		if at, _, _ := firstDifference("", converted, again); at != "" {
			return at
		}
	}
	return ""
}

// explain returns the reason why an object cannot be converted, and the step that fails; the step is nil if no step is at fault.
func (t *trial) explain(err error) (why string, step *schemas.ConversionStep) {
	var failed *conversion.Error
	if !errors.As(err, &failed) {
		return err.Error(), nil
	}
	for i := range t.version.Conversion.Steps {
		if s := &t.version.Conversion.Steps[i]; s.Source == failed.Source {
			step = s
		}
	}
	return failed.Step + ": " + failed.Err.Error(), step
}

// lost reports a field that an object loses on the way to another version and back.
func (t *trial) lost(a, b *side, at string, before, after any, x map[string]any) {
	message := fmt.Sprintf("%s → %s → %s loses %s: %s", a.Name, b.Name, a.Name, at, text(before, 80))
	switch {
	case before == nil:
		message = fmt.Sprintf("%s → %s → %s makes %s: %s", a.Name, b.Name, a.Name, at, text(after, 80))
	case after != nil:
		message = fmt.Sprintf("%s → %s → %s makes %s of %s: %s", a.Name, b.Name, a.Name, text(after, 80), at, text(before, 80))
	}
	hint := fmt.Sprintf("say what becomes of it in %s, or that it is lost: {drop: {field: %q, reason: …}}", b.Name, at)
	step := t.stepAt(a, at)
	if step != nil {
		hint = fmt.Sprintf("narrow the schema, or say that it is acceptable: %s: {…, drop: \"why\"}", step.Do)
	}
	t.found(message, x, step, hint)
}

// found reports a finding with an example, each kind of finding once.
func (t *trial) found(message string, example map[string]any, step *schemas.ConversionStep, hint string) {
	key := indexes.ReplaceAllString(quotes.ReplaceAllString(message, ""), "[]")
	if t.said[key] || len(t.said) >= maxLosses {
		return
	}
	t.said[key] = true
	t.refuse(step, message+"; an example is "+text(example, 300), hint)
}

// stepAt returns the step that has a field in a version.
func (t *trial) stepAt(s *side, field string) *schemas.ConversionStep {
	field = indexes.ReplaceAllString(field, "[*]")
	p, err := conversion.ParsePath(field)
	if err != nil {
		return nil
	}
	for _, step := range s.steps {
		if slices.ContainsFunc(step.fields, func(f conversion.Path) bool { return p.In(f) || f.In(p) }) {
			return step.ConversionStep
		}
	}
	return nil
}

// tidy removes what need not be the same after a conversion and back: fields of steps that may lose values, values that a default
// has added, nulls and empty lists that steps do not keep, and structs around fields of steps that are empty.
func (s *side) tidy(before, after map[string]any) {
	for _, step := range s.steps {
		for _, p := range step.fields {
			if step.Drop != "" {
				p.Remove(before)
				p.Remove(after)
			}
			if step.Do == schemas.StepDefault && !p.Replace(before, func(x any) any { return x }) {
				p.Remove(after)
			}
			for _, x := range []map[string]any{before, after} {
				p.RemoveEmpty(x)
			}
		}
	}
}

// firstDifference returns the first path at which two values differ, and both values; nil for one that is absent.
func firstDifference(at string, a, b any) (path string, is, other any) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := slices.Sorted(maps.Keys(x))
		for _, key := range slices.Sorted(maps.Keys(y)) {
			if _, has := x[key]; !has {
				keys = append(keys, key)
			}
		}
		for _, key := range keys {
			below := strings.TrimPrefix(at+"."+key, ".")
			u, hasU := x[key]
			v, hasV := y[key]
			if hasU != hasV {
				return below, u, v
			}
			if path, is, other := firstDifference(below, u, v); path != "" {
				return path, is, other
			}
		}
		return "", nil, nil
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			if path, is, other := firstDifference(fmt.Sprintf("%s[%d]", at, i), x[i], y[i]); path != "" {
				return path, is, other
			}
		}
		return "", nil, nil
	}
	if jsonvalue.EqualFunc(a, b, jsonvalue.SameScalar) {
		return "", nil, nil
	}
	return at, a, b
}

// text returns a value as JSON of limited length.
func text(x any, most int) string {
	data, err := json.Marshal(x)
	if err != nil {
		return err.Error()
	}
	return wording.Cut(string(data), most)
}
