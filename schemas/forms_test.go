package schemas

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// formed makes random forms with the parts that the grammar, which writes CUE, has not:
// unions, logic, conditions, types of lists and maps, formats.
func formed(seed uint64) (*Node, *grammar) {
	g := &grammar{maker: maker{rand.New(rand.NewPCG(seed, 7)), 3, nil, 0}}
	n := g.formStruct(4)
	n.Kinds, n.Default = StructKind, nil
	n.Struct.Fields = slices.DeleteFunc(n.Struct.Fields, func(f Field) bool { return serverOwned(f.Name) })
	n.Embedded = false
	return n, g
}

func (g *grammar) formNode(depth int) *Node {
	var n *Node
	switch k := g.IntN(12); {
	case depth > 0 && k < 3:
		n = g.formStruct(depth)
	case depth > 0 && k < 5:
		n = g.formList(depth)
	default:
		n = g.formScalar()
	}
	// Upstream's validator takes no enumeration to have null, even if it has.
	if g.chance(12) && !slices.ContainsFunc(n.Scalars, func(s Scalar) bool { return len(s.Enum) > 0 }) {
		n.Kinds |= NullKind
	}
	if g.chance(15) {
		n.Doc = "Said of it."
	}
	if g.chance(10) {
		n.Immutable = &Position{File: "kinds.cue", Line: 3}
	}
	if depth > 0 && g.chance(15) && n.Kinds != AnyKind {
		n.Logic = g.formLogic(n, depth-1)
		if v, err := decode(n.Default); err == nil && !holdsLogic(n.Logic, v) {
			n.Default = nil
		}
	}
	return n
}

func (g *grammar) formScalar() *Node {
	bound := func(v ...string) *Bound { return &Bound{Value: g.oneOf(v...), Exclusive: g.chance(30)} }
	constant := func(texts ...string) []Constant { return []Constant{{Value: json.RawMessage(g.oneOf(texts...))}} }
	switch g.IntN(12) {
	case 0:
		return &Node{Kinds: BoolKind}
	case 1:
		return &Node{Kinds: AnyKind}
	case 2:
		return &Node{Kinds: IntegerKind | StringKind}
	case 3:
		return &Node{Kinds: StringKind | BoolKind}
	case 4, 5:
		s := Scalar{Kinds: IntegerKind}
		if g.chance(40) {
			s.Minimum = bound("0", "-3", "9007199254740993", "2.5")
		}
		if g.chance(40) {
			s.Maximum = bound("7", "100", "9223372036854775807", "9007199254740993")
		}
		if g.chance(30) {
			s.MultipleOf = &Bound{Value: g.oneOf("2", "5", "0.5")}
		}
		if g.chance(20) {
			s.Not = constant("0", "1", "7")
		}
		return &Node{Kinds: IntegerKind, Scalars: []Scalar{s}}
	case 6, 7:
		s := Scalar{Kinds: IntegerKind | NumberKind}
		if g.chance(50) {
			s.Minimum = bound("0.1", "-3", "0")
		}
		if g.chance(30) {
			s.MultipleOf = &Bound{Value: g.oneOf("0.1", "0.5", "2")}
		}
		return &Node{Kinds: s.Kinds, Scalars: []Scalar{s}}
	case 8:
		s := Scalar{Kinds: StringKind, Forms: []Form{{Name: g.oneOf("net.IPv4", "net.IPCIDR", "time.Time")}}}
		return &Node{Kinds: StringKind, Scalars: []Scalar{s}, Sensitive: g.chance(20)}
	case 9:
		return &Node{Kinds: StringKind, Format: g.oneOf("byte", "date-time", "uuid", "of-our-own"), Sensitive: g.chance(20)}
	}
	s := Scalar{Kinds: StringKind}
	switch g.IntN(4) {
	case 0:
		s.Enum = []json.RawMessage{json.RawMessage(`"a"`), json.RawMessage(`"b"`)}
	case 1:
		s.Patterns = []Pattern{{Regexp: "^[ab]*$"}, {Regexp: "bb", Negated: true}}[:1+g.IntN(2)]
	case 2:
		s.MinRunes, s.MaxRunes = &Limit{Count: 1}, &Limit{Count: 3}
	}
	n := &Node{Kinds: StringKind, Scalars: []Scalar{s}, Sensitive: g.chance(10)}
	if len(s.Enum) > 0 && g.chance(40) {
		n.Default = json.RawMessage(`"a"`)
	}
	return n
}

func (g *grammar) formList(depth int) *Node {
	l := &List{Items: g.formNode(depth - 1)}
	switch g.IntN(5) {
	case 0:
		l.Type, l.Items = ListSet, g.formScalar()
		l.Unique = l.Items.Kinds&(ListKind|StructKind) == 0
		if l.Items.Kinds == AnyKind {
			l.Type = "" // which may be null
		}
	case 1:
		l.Type, l.MapKeys, l.Items = ListMap, []string{"name"}, g.formStruct(depth-1)
		l.Items.Kinds, l.Items.Union, l.Items.Default = StructKind, nil, nil
		fields := slices.DeleteFunc(l.Items.Struct.Fields, func(f Field) bool { return f.Name == "name" || f.Name == "port" })
		l.Items.Struct.Fields = append(fields, Field{Name: "name", Presence: Required, Schema: &Node{Kinds: StringKind}})
		if g.chance(50) {
			l.MapKeys = append(l.MapKeys, "port")
			l.Items.Struct.Fields = append(l.Items.Struct.Fields, Field{Name: "port", Presence: Regular, Schema: &Node{
				Kinds: IntegerKind, Scalars: []Scalar{{Kinds: IntegerKind}}, Default: json.RawMessage("80")}})
		}
	case 2:
		l.Type = ListAtomic
	}
	if g.chance(20) {
		l.MinItems = &Limit{Count: 1}
	}
	if g.chance(20) {
		l.MaxItems = &Limit{Count: 2}
	}
	return &Node{Kinds: ListKind, List: l}
}

func (g *grammar) formStruct(depth int) *Node {
	s := &Struct{}
	n := &Node{Kinds: StructKind, Struct: s}
	if g.chance(15) {
		s.Patterns = []KeyPattern{{Key: &Node{Kinds: StringKind}, Value: g.formNode(depth - 1)}}
	} else {
		for _, name := range []string{"a", "b", "c", "d-e"}[:1+g.IntN(4)] {
			s.Fields = append(s.Fields, Field{Name: name, Presence: []Presence{Required, Regular, Optional, Optional}[g.IntN(4)], Schema: g.formNode(depth - 1)})
		}
		s.Open = g.chance(10)
		switch g.IntN(6) {
		case 0:
			n.Embedded = true
		case 1:
			n.Union = g.formUnion(s, depth)
		case 2:
			s.Conditions = []Condition{{When: &Guard{Op: "present", Field: "a"}, Fields: []Field{
				{Name: "when", Presence: Required, Schema: g.formNode(depth - 1)},
				{Name: "a", Presence: Optional, Schema: g.formNode(depth - 1)},
			}}}
			if g.chance(50) {
				s.Conditions = append(s.Conditions, Condition{When: &Guard{Op: "absent", Field: "a"}, Fields: []Field{
					{Name: "when", Presence: Optional, Schema: g.formNode(depth - 1)}}})
			}
		}
	}
	if g.chance(10) {
		s.MinFields = &Limit{Count: 1}
	}
	if g.chance(10) {
		s.MaxFields = &Limit{Count: 2}
	}
	if g.chance(20) {
		s.Type = g.oneOf(MapAtomic, MapGranular)
	}
	return n
}

// formUnion makes arms of s, which gets the fields of all of them.
func (g *grammar) formUnion(s *Struct, depth int) *Union {
	u := &Union{}
	if g.chance(60) {
		u.Discriminator = "type"
		s.Fields = append(s.Fields, Field{Name: "type", Presence: Required, Schema: &Node{Kinds: StringKind}})
	}
	for _, name := range []string{"x", "y"} {
		own := Field{Name: name, Presence: []Presence{Required, Optional}[g.IntN(2)], Schema: g.formNode(depth - 1)}
		arm := &Struct{Open: s.Open, Fields: append(slices.Clone(s.Fields), own)}
		a := Arm{Struct: arm}
		if u.Discriminator != "" {
			value, _ := json.Marshal(name)
			a.Values = []json.RawMessage{value}
			arm.Fields[len(arm.Fields)-2].Schema = &Node{Kinds: StringKind, Scalars: []Scalar{{Kinds: StringKind, Enum: a.Values}}}
		}
		u.Arms = append(u.Arms, a)
		defer func() {
			own.Presence = Optional
			s.Fields = append(s.Fields, own)
		}()
	}
	return u
}

// formLogic makes logic about what n admits.
func (g *grammar) formLogic(n *Node, depth int) *Logic {
	about := func() *Node {
		m := &Node{Kinds: AnyKind}
		switch {
		case n.Struct != nil:
			m.Struct = &Struct{Open: true}
			for _, f := range n.Struct.Fields {
				if g.chance(50) {
					m.Struct.Fields = append(m.Struct.Fields, Field{Name: f.Name, Presence: []Presence{Required, Optional}[g.IntN(2)], Schema: &Node{Kinds: AnyKind}})
				}
			}
			if g.chance(10) {
				m.Struct.Fields = append(m.Struct.Fields, Field{Name: "foreign", Presence: Optional, Schema: &Node{Kinds: StringKind}})
			}
			if g.chance(20) {
				m.Struct.MaxFields = &Limit{Count: 1}
			}
		case n.List != nil:
			m.List = &List{MinItems: &Limit{Count: g.IntN(3)}}
			if g.chance(30) {
				m.List.Items = g.formScalar()
			}
		default:
			m = g.formScalar()
			m.Default, m.Format = nil, ""
			if g.chance(50) {
				m.Kinds = AnyKind
			}
		}
		if depth > 0 && g.chance(20) {
			m.Logic = g.formLogic(n, depth-1)
		}
		return m
	}
	l := &Logic{}
	switch g.IntN(5) {
	case 0:
		l.AllOf = []*Node{about(), about()}
	case 1:
		l.AnyOf = []*Node{about(), about()}
	case 2:
		l.OneOf = []*Node{about(), about()}
	case 3:
		l.Not = about()
	default:
		l.AnyOf, l.Not = []*Node{about(), about()}, about()
	}
	return l
}

// formAdmits says by the words of the form alone, part by part, whether a node admits a value.
func formAdmits(n *Node, x any) bool {
	kind := formKind(x)
	if !n.Kinds.Has(kind) || !holdsScalar(n, kind, x) {
		return false
	}
	switch x := x.(type) {
	case []any:
		if l := n.List; l != nil {
			if l.MinItems != nil && len(x) < l.MinItems.Count || l.MaxItems != nil && len(x) > l.MaxItems.Count {
				return false
			}
			seen := map[string]bool{}
			for _, item := range x {
				if l.Items != nil && !formAdmits(l.Items, item) {
					return false
				}
				id := asJSON(item)
				if l.Type == ListMap {
					id = ""
					for _, k := range l.MapKeys {
						id += asJSON(item.(map[string]any)[k]) + ","
					}
				}
				if (l.Unique || l.Type == ListSet || l.Type == ListMap) && seen[id] {
					return false
				}
				seen[id] = true
			}
		}
	case map[string]any:
		if n.Struct != nil && !holdsStruct(n.Struct, x) {
			return false
		}
		if n.Union != nil && !slices.ContainsFunc(n.Union.Arms, func(a Arm) bool { return holdsStruct(a.Struct, x) }) {
			return false
		}
		if n.Embedded {
			apiVersion, _ := x["apiVersion"].(string)
			kind, _ := x["kind"].(string)
			if apiVersion == "" || kind == "" {
				return false
			}
		}
	}
	return n.Logic == nil || holdsLogic(n.Logic, x)
}

func holdsLogic(l *Logic, x any) bool {
	count := func(nodes []*Node) (k int) {
		for _, n := range nodes {
			if formAdmits(n, x) {
				k++
			}
		}
		return k
	}
	return count(l.AllOf) == len(l.AllOf) && (len(l.AnyOf) == 0 || count(l.AnyOf) > 0) &&
		(len(l.OneOf) == 0 || count(l.OneOf) == 1) && (l.Not == nil || !formAdmits(l.Not, x))
}

func holdsStruct(s *Struct, x map[string]any) bool {
	if s.MinFields != nil && len(x) < s.MinFields.Count || s.MaxFields != nil && len(x) > s.MaxFields.Count {
		return false
	}
	fields := slices.Clone(s.Fields)
	for _, c := range s.Conditions {
		if _, present := x[c.When.Field]; present == (c.When.Op == "present") {
			fields = append(fields, c.Fields...)
		}
	}
	known := map[string]bool{}
	for _, f := range fields {
		known[f.Name] = true
		v, ok := x[f.Name]
		if !ok && f.Presence != Optional || ok && !formAdmits(f.Schema, v) {
			return false
		}
	}
	for k, v := range x {
		for _, p := range s.Patterns {
			if !known[k] && !formAdmits(p.Value, v) {
				return false
			}
		}
		if !known[k] && !s.Open && len(s.Patterns) == 0 && !serverOwned(k) {
			return false
		}
	}
	return true
}

func formKind(x any) Kinds {
	switch x.(type) {
	case nil:
		return NullKind
	case bool:
		return BoolKind
	case int64:
		return IntegerKind
	case float64:
		return NumberKind
	case string:
		return StringKind
	case []any:
		return ListKind
	}
	return StructKind
}

func holdsScalar(n *Node, kind Kinds, x any) bool {
	about := n.alternatives(kind)
	if kind == IntegerKind {
		about = n.alternatives(IntegerKind | NumberKind)
	}
	alone := &Node{Kinds: n.Kinds | IntegerKind, Scalars: n.Scalars}
	if n.Format == FormatByte || n.Format == FormatDateTime {
		alone.Format = n.Format
	}
	c, err := NewChecker(alone)
	if err != nil {
		panic(err)
	}
	if kind&scalarKinds != 0 {
		if len(c.Validate(x)) > 0 {
			return false
		}
	}
	if text, ok := x.(string); ok && strfmt.Default.ContainsName(n.Format) && !strfmt.Default.Validates(n.Format, text) {
		return false
	}
	return len(about) == 0 || slices.ContainsFunc(about, func(s *Scalar) bool {
		if s.MultipleOf != nil {
			m, _ := parseDecimal(s.MultipleOf.Value)
			v, err := parseDecimal(strings.TrimSuffix(fmt.Sprint(x), ".0"))
			if err != nil || !v.Quo(v, m).IsInt() {
				return false
			}
		}
		for _, f := range s.Forms {
			if !reflect.DeepEqual(x, formSamples[f.Name]) {
				return false
			}
		}
		return true
	})
}

// formSamples pass CUE's tests.
var formSamples = map[string]any{"net.IPv4": "10.1.2.3", "net.IPCIDR": "10.1.0.0/16", "time.Time": "2026-01-02T03:04:05.678+01:00"}
