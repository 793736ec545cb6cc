package program

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// A preparation is one run of Prepare.
type preparation struct {
	path     []step
	scopes   []scope // enclosing structs, as far as references may lead to them
	unknown  []string
	changed  bool
	fill     bool // set defaults; otherwise only prune
	converts bool // the object was converted from another version, where defaults were set
	nulls    bool // keep nulls that count as absent
	failed   *field.Error
	patience *patience // the limit on evaluations; nil before the first
	omitted  []omission
	left     func(path string) // called for each default that CUE refuses once it is written out; may be nil
}

func (p *preparation) push(s step) { p.path = append(p.path, s) }

func (p *preparation) pop() { p.path = p.path[:len(p.path)-1] }

// drop records that the key below the current path was removed.
func (p *preparation) drop(key string) {
	var b strings.Builder
	for _, s := range p.path {
		if s.kind == stepItem {
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(s.index))
			b.WriteByte(']')
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.name)
	}
	if b.Len() > 0 {
		b.WriteByte('.')
	}
	b.WriteString(key)
	p.unknown = append(p.unknown, b.String())
	p.changed = true
}

// value prepares x and returns the value that replaces it.
func (p *preparation) value(c *check, x any) any {
	if !c.acts {
		if hasParts(x) {
			p.shed(c, x)
		}
		return x
	}
	if c.fallbackCheck != nil {
		return p.fallback(c, p.parts(c, x))
	}
	if c.node.Bare {
		p.strip(x)
		return x
	}
	if !c.completes || !p.fill {
		return p.parts(c, x)
	}
	// Compare with the default after pruning, but without filling in defaults: unknown fields do not
	// count.
	p.fill = false
	p.parts(c, x)
	p.fill = true
	if !jsonvalue.PartOf(x, c.fallback) {
		return p.parts(c, x)
	}
	if !jsonvalue.PartOf(c.fallback, x) {
		p.changed = true
		return jsonvalue.Clone(c.fallback)
	}
	return x
}

// parts prepares x and ignores the default of c.
func (p *preparation) parts(c *check, x any) any {
	switch x := x.(type) {
	case map[string]any:
		if c.node.Embedded && (p.fill || p.converts) {
			p.embedded(x)
		}
		if c.object != nil && c.kinds.Has(schemas.StructKind) {
			p.structure(c, x, c.node.Embedded)
		} else if c.sheds && !c.kinds.Has(schemas.StructKind) {
			p.strip(x)
		}
	case []any:
		if c.list != nil && (c.list.items != nil || c.list.prefix != nil) && c.kinds.Has(schemas.ListKind) {
			p.list(c.list, x)
		} else if c.sheds && (c.object == nil || !c.object.open) {
			p.strip(x)
		}
	case float64:
		if n, ok := jsonvalue.Int64(x); ok && c.narrows && p.fill {
			p.changed = true
			return n
		}
	}
	return x
}

// structure prepares the struct m, including unions and fallbacks.
func (p *preparation) structure(c *check, m map[string]any, root bool) {
	if c.union != nil {
		p.choose(c, m, root)
		return
	}
	p.object(c.object, m, root)
	if root && c.fallbackCheck != nil {
		p.prepareByCUE(c, m, root)
	}
}

// prepareByCUE lets CUE prepare m, except for the server's fields at the root.
func (p *preparation) prepareByCUE(c *check, m map[string]any, root bool) {
	own := content(m, root)
	if completed, ok := p.fallback(c, own).(map[string]any); ok && root {
		own = completed
	} else if ok {
		maps.Copy(own, completed)
	}
	if !root {
		return
	}
	for key := range m {
		if _, ok := own[key]; !ok && !schemas.ServerOwned(key) {
			delete(m, key)
		}
	}
	maps.Copy(m, own)
}

func (p *preparation) object(o *objectCheck, m map[string]any, root bool) {
	if o.refers {
		p.scopes = append(p.scopes, enter(o, m, p.path))
		defer func() { p.scopes = p.scopes[:len(p.scopes)-1] }()
	}
	known := 0
	for i := range o.fields {
		if _, ok := m[o.fields[i].name]; ok {
			known++
		}
	}
	if known < len(m) && !o.open && len(o.patterns) == 0 {
		p.prune(o, m, root)
	}
	var added []*fieldCheck
	if o.conditions != nil {
		var undecided []string
		if added, undecided = o.active(m); len(undecided) == 0 {
			p.inactive(o, m, added)
		}
		for _, f := range added {
			p.field(f, m)
		}
	}
	for i := range o.fields {
		f := &o.fields[i]
		if added != nil && slices.ContainsFunc(added, func(a *fieldCheck) bool { return a.name == f.name }) {
			continue // conditions declare the field
		}
		if p.field(f, m) {
			known--
		}
	}
	if known < len(m) {
		p.patterns(o, m, root)
	}
}

// inactive removes the fields of conditions that do not hold.
func (p *preparation) inactive(o *objectCheck, m map[string]any, added []*fieldCheck) {
	for i := range o.conditions {
		for j := range o.conditions[i].fields {
			name := o.conditions[i].fields[j].name
			_, ok := m[name]
			if !ok || o.index[name] != conditional || o.open || o.matches(name) ||
				slices.ContainsFunc(added, func(f *fieldCheck) bool { return f.name == name }) {
				continue
			}
			delete(m, name)
			p.drop(name)
		}
	}
}

// field prepares a field of m. It reports whether it removed the field.
func (p *preparation) field(f *fieldCheck, m map[string]any) (dropped bool) {
	x, ok := m[f.name]
	if p.fill && f.fills && (!ok || x == nil && f.check.fillsNull) {
		if p.omits(m, f.name) {
			return false
		}
		m[f.name] = jsonvalue.Clone(f.absent)
		p.withdraw(m, f.name)
		p.changed = true
		if f.check.refers {
			p.push(step{name: f.name})
			p.value(f.check, m[f.name])
			p.pop()
		}
		return false
	}
	if p.fill && f.taken() && (!ok || x == nil && f.check.fillsNull) {
		p.take(f, m)
		return false
	}
	if ok && x == nil && f.check.node.DropNull && !p.nulls && !(p.converts && f.fills) {
		delete(m, f.name)
		p.changed = true
		return true
	}
	if ok && (f.check.acts || f.check.sheds && hasParts(x)) {
		p.push(step{name: f.name})
		p.assign(m, f.name, x, f.check)
		p.pop()
	}
	return false
}

// hasParts reports whether x is a list or a struct.
func hasParts(x any) bool {
	switch x.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// keeps reports whether a value of c, without parts, surely stays as it is.
func (c *check) keeps(x any) bool {
	if x == nil || hasParts(x) {
		return false
	}
	_, isFloat := x.(float64)
	return !c.acts || !isFloat && !c.completes && c.fallbackCheck == nil
}

// shed prunes values whose kind c does not admit, in x and its parts. As in Kubernetes, a struct in a
// place that admits no struct loses its fields before it is rejected.
func (p *preparation) shed(c *check, x any) {
	if !c.sheds {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		if !c.kinds.Has(schemas.StructKind) {
			p.strip(x)
		} else if c.object != nil {
			p.shedFields(c.object, x)
		}
	case []any:
		if c.list == nil || c.list.items == nil {
			p.parts(c, x)
			return
		}
		for i, item := range x {
			if hasParts(item) {
				p.push(step{index: i, kind: stepItem})
				p.value(c.list.items, item)
				p.pop()
			}
		}
	}
}

// assign stores the prepared value x in m under key, if it differs from the old value.
func (p *preparation) assign(m map[string]any, key string, x any, c *check) {
	y := p.value(c, x)
	switch x.(type) {
	case float64:
		m[key] = y
	case map[string]any, []any:
		if c.completes || c.fallbackCheck != nil {
			m[key] = y
		}
	}
}

func (p *preparation) shedFields(o *objectCheck, m map[string]any) {
	for i := range o.fields {
		p.field(&o.fields[i], m)
	}
	p.patterns(o, m, false)
}

// prune removes the keys of m that are not fields.
func (p *preparation) prune(o *objectCheck, m map[string]any, root bool) {
	var drop []string
	for key := range m {
		if _, ok := o.index[key]; !ok && !(root && schemas.ServerOwned(key)) {
			drop = append(drop, key)
		}
	}
	slices.Sort(drop)
	for _, key := range drop {
		delete(m, key)
		p.drop(key)
	}
}

// patterns prepares the values of keys that are not declared fields.
func (p *preparation) patterns(o *objectCheck, m map[string]any, root bool) {
	for i := range o.patterns {
		pattern := &o.patterns[i]
		if !pattern.value.acts && !pattern.value.node.DropNull && !pattern.value.sheds {
			continue
		}
		var concerned []string
		for key, x := range m {
			if pattern.value.keeps(x) {
				continue // most values of maps are scalars, which stay as they are
			}
			if _, ok := o.index[key]; !ok && (!root || !schemas.ServerOwned(key)) && pattern.key.admitsKey(key) {
				concerned = append(concerned, key)
			}
		}
		slices.Sort(concerned)
		for _, key := range concerned {
			if m[key] == nil && pattern.value.node.DropNull {
				switch {
				case pattern.value.fallback != nil && p.converts:
					continue
				case pattern.value.fallback != nil:
					m[key] = jsonvalue.Clone(pattern.value.fallback)
				case p.nulls:
					continue
				default:
					delete(m, key)
				}
				p.changed = true
				continue
			}
			p.push(step{name: key, kind: stepKey})
			p.assign(m, key, m[key], pattern.value)
			p.pop()
		}
	}
}

func (p *preparation) list(l *listCheck, items []any) {
	for i, x := range items {
		c := l.itemCheck(i)
		if c == nil {
			continue
		}
		if x == nil && c.node.DropNull && c.fallback != nil && !p.converts {
			items[i] = jsonvalue.Clone(c.fallback)
			p.changed = true
			continue
		}
		p.push(step{index: i, kind: stepItem})
		items[i] = p.value(c, x)
		p.pop()
	}
}

// strip removes all fields of structs in x, also inside lists.
func (p *preparation) strip(x any) {
	switch x := x.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			delete(x, key)
			p.drop(key)
		}
	case []any:
		for i, item := range x {
			p.push(step{index: i, kind: stepItem})
			p.strip(item)
			p.pop()
		}
	}
}
