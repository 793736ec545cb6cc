package program

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// A scope is an enclosing struct that references may lead to.
type scope struct {
	object *objectCheck
	m      map[string]any
	key    string // the map key of the struct, if any
	depth  int    // the length of the path to the struct

	// in and below are set if the struct is a default that is not in the data: in is the nearest
	// enclosing struct in the data, and below is the path from it.
	in    map[string]any
	below []string
}

// sameMap reports whether x and y are the same map, not only equal.
func sameMap(x, y map[string]any) bool {
	return reflect.ValueOf(x).UnsafePointer() == reflect.ValueOf(y).UnsafePointer()
}

// enter returns the scope of the struct m at a path.
func enter(o *objectCheck, m map[string]any, path []step) scope {
	s := scope{object: o, m: m, depth: len(path)}
	if n := len(path); n > 0 && path[n-1].kind != stepItem {
		s.key = path[n-1].name
	}
	return s
}

// maxReferences is the maximum length of a chain of references.
const maxReferences = 16

// resolve returns the value of a reference as it will be after defaulting. given reports that the value
// is in the data and not a default.
func resolve(r *schemas.Reference, scopes []scope, depth int) (x any, given, ok bool) {
	return followReference(r, scopes, depth, nil)
}

// followReference does what resolve does. It also adds the missing fields whose default was used to
// passed.
func followReference(r *schemas.Reference, scopes []scope, depth int, passed *[]omission) (x any, given, ok bool) {
	if !r.Joined {
		return followPart(&r.Parts[0], scopes, depth, passed)
	}
	var b strings.Builder
	for i := range r.Parts {
		p := &r.Parts[i]
		if p.Path == nil && !p.Key {
			b.WriteString(p.Text)
			continue
		}
		x, _, ok := followPart(p, scopes, depth, nil)
		if !ok {
			return nil, false, false
		}
		switch x := x.(type) {
		case string:
			b.WriteString(x)
		case int64:
			b.WriteString(strconv.FormatInt(x, 10))
		default:
			return nil, false, false
		}
	}
	return b.String(), true, true
}

func followPart(p *schemas.Part, scopes []scope, depth int, passed *[]omission) (x any, given, ok bool) {
	at := len(scopes) - 1 - p.Up
	if at < 0 || depth > maxReferences {
		return nil, false, false
	}
	if s := scopes[at]; p.Key {
		return s.key, true, true
	}
	scopes = scopes[:at+1]
	for i, name := range p.Path {
		s := scopes[len(scopes)-1]
		if i == len(p.Path)-1 {
			x, _, given, ok = s.field(name, scopes, depth, passed)
			break
		}
		var of *check
		if x, of, given, ok = s.field(name, scopes, depth, nil); !ok {
			break
		}
		m, isStruct := x.(map[string]any)
		if !isStruct || of == nil || of.object == nil {
			return nil, false, false
		}
		next := scope{object: of.object, m: m, key: name}
		if !given {
			next.in, next.below = s.find(name)
		}
		scopes = append(scopes[:len(scopes):len(scopes)], next)
	}
	return x, given, ok
}

// find returns the struct in the data and the path from it that lead to a field of s.
func (s *scope) find(name string) (in map[string]any, path []string) {
	if s.in == nil {
		return s.m, []string{name}
	}
	return s.in, append(slices.Clip(s.below), name)
}

// field returns a field of the struct.
func (s *scope) field(name string, scopes []scope, depth int, passed *[]omission) (x any, of *check, given, ok bool) {
	i, known := s.object.index[name]
	if !known || i < 0 {
		return nil, nil, false, false
	}
	f := &s.object.fields[i]
	x, ok = s.m[name]
	if ok && !(x == nil && f.check.fillsNull) {
		s.pass(name, s.in != nil, passed)
		return x, f.check, s.in == nil, true
	}
	s.pass(name, true, passed)
	switch from := f.check.node.From; {
	case f.presence != schemas.Regular:
	case from != nil:
		x, given, ok = followReference(from, scopes, depth+1, passed)
		return x, f.check, given && !from.Default, ok
	case f.fills:
		return f.absent, f.check, false, true
	}
	return nil, f.check, false, false
}

// pass adds the field to passed if it is missing.
func (s *scope) pass(name string, missing bool, passed *[]omission) {
	if missing && passed != nil {
		in, path := s.find(name)
		*passed = append(*passed, omission{in, path})
	}
}

// taken checks that x has the value of its reference.
func (v *inspection) taken(c *check, x any) {
	r := c.node.From
	if r.Default {
		return
	}
	y, given, ok := resolve(r, v.scopes, 0)
	switch {
	case !ok: // the missing field is reported at its own path
		if v.quiet > 0 {
			v.failed = v.failed || !v.lenient
		}
	case (given || r.Joined) && !jsonvalue.SameScalar(x, y):
		if v.hush() {
			return
		}
		detail := fmt.Sprintf("must be %s, which is %s", r, asText(y))
		if v.secret > 0 || c.node.Sensitive {
			x, detail = any(field.OmitValueType{}), "must be "+r.String()
		}
		before := v.whole
		if depth := v.anchor(r) + 1; v.whole == 0 || v.whole > depth {
			v.whole = depth
		}
		v.invalid(x, detail, r.Source)
		v.whole = before
	}
}

// isDefault reports whether x is the value of the reference that is the default of c. The rules of the other alternatives need not admit
// it.
func (v *inspection) isDefault(c *check, x any) bool {
	r := c.node.From
	if r == nil || !r.Default || len(c.node.Scalars) == 0 || c.format != nil {
		return false
	}
	y, _, ok := resolve(r, v.scopes, 0)
	return ok && jsonvalue.SameScalar(x, y)
}

// anchor returns the length of the path to the outermost struct that the reference leads to.
func (v *inspection) anchor(r *schemas.Reference) int {
	depth := len(v.path)
	for i := range r.Parts {
		if at := len(v.scopes) - 1 - r.Parts[i].Up; at >= 0 && (r.Parts[i].Path != nil || r.Parts[i].Key) {
			depth = min(depth, v.scopes[at].depth)
		}
	}
	return depth
}

// absent checks a missing field that gets its value from a reference, or has parts that do. It reports
// whether the field is such a field.
func (v *inspection) absent(f *fieldCheck) bool {
	switch {
	case f.presence != schemas.Regular:
		return false
	case f.check.node.From != nil:
		y, _, ok := resolve(f.check.node.From, v.scopes, 0)
		if !ok {
			return false
		}
		v.push(step{name: f.name})
		v.value(f.check, y)
		v.pop()
	case f.fills && f.check.refers && f.check.kinds == schemas.StructKind && len(f.check.node.Default) == 0:
		v.push(step{name: f.name})
		v.value(f.check, map[string]any{})
		v.pop()
	default:
		return false
	}
	return true
}

// take sets a missing field to the value of its reference.
func (p *preparation) take(f *fieldCheck, m map[string]any) {
	if p.omits(m, f.name) {
		return
	}
	y, _, ok := resolve(f.check.node.From, p.scopes, 0)
	if ok {
		m[f.name] = y
		p.changed = true
	}
}

func asText(x any) string {
	if s, ok := x.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(x)
}
