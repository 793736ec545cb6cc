package fromcue_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

// formed returns a random form with parts that the grammar cannot write in CUE: unions, logic,
// conditions, types of lists and maps, formats.
func formed(seed uint64) (*schemas.Node, *grammar) {
	g := &grammar{Maker: samples.Maker{Rand: rand.New(rand.NewPCG(seed, 7)), Unknown: 3, Keys: nil, Full: 0}}
	n := g.formStruct(4)
	n.Kinds, n.Default = schemas.StructKind, nil
	n.Struct.Fields = slices.DeleteFunc(n.Struct.Fields, func(f schemas.Field) bool { return schemas.ServerOwned(f.Name) })
	n.Embedded = false
	return n, g
}

func (g *grammar) formNode(depth int) *schemas.Node {
	var n *schemas.Node
	switch k := g.IntN(12); {
	case depth > 0 && k < 3:
		n = g.formStruct(depth)
	case depth > 0 && k < 5:
		n = g.formList(depth)
	default:
		n = g.formScalar()
	}
	// Upstream's validator never accepts null for an enumeration.
	if g.Chance(12) && !slices.ContainsFunc(n.Scalars, func(s schemas.Scalar) bool { return len(s.Enum) > 0 }) {
		n.Kinds |= schemas.NullKind
	}
	if g.Chance(15) {
		n.Doc = "Said of it."
	}
	if g.Chance(10) {
		n.Immutable = &schemas.Position{File: "kinds.cue", Line: 3}
	}
	if depth > 0 && g.Chance(15) && n.Kinds != schemas.AnyKind {
		n.Logic = g.formLogic(n, depth-1)
		if v, err := jsonvalue.Decode(n.Default); err == nil && !holdsLogic(n.Logic, v) {
			n.Default = nil
		}
	}
	return n
}

func (g *grammar) formScalar() *schemas.Node {
	bound := func(v ...string) *schemas.Bound { return &schemas.Bound{Value: g.OneOf(v...), Exclusive: g.Chance(30)} }
	constant := func(texts ...string) []schemas.Constant {
		return []schemas.Constant{{Value: json.RawMessage(g.OneOf(texts...))}}
	}
	switch g.IntN(12) {
	case 0:
		return &schemas.Node{Kinds: schemas.BoolKind}
	case 1:
		return &schemas.Node{Kinds: schemas.AnyKind}
	case 2:
		return &schemas.Node{Kinds: schemas.IntegerKind | schemas.StringKind}
	case 3:
		return &schemas.Node{Kinds: schemas.StringKind | schemas.BoolKind}
	case 4, 5:
		s := schemas.Scalar{Kinds: schemas.IntegerKind}
		if g.Chance(40) {
			s.Minimum = bound("0", "-3", "9007199254740993", "2.5")
		}
		if g.Chance(40) {
			s.Maximum = bound("7", "100", "9223372036854775807", "9007199254740993")
		}
		if g.Chance(30) {
			s.MultipleOf = &schemas.Bound{Value: g.OneOf("2", "5", "0.5")}
		}
		if g.Chance(20) {
			s.Not = constant("0", "1", "7")
		}
		return &schemas.Node{Kinds: schemas.IntegerKind, Scalars: []schemas.Scalar{s}}
	case 6, 7:
		s := schemas.Scalar{Kinds: schemas.IntegerKind | schemas.NumberKind}
		if g.Chance(50) {
			s.Minimum = bound("0.1", "-3", "0")
		}
		if g.Chance(30) {
			s.MultipleOf = &schemas.Bound{Value: g.OneOf("0.1", "0.5", "2")}
		}
		return &schemas.Node{Kinds: s.Kinds, Scalars: []schemas.Scalar{s}}
	case 8:
		s := schemas.Scalar{Kinds: schemas.StringKind, Forms: []schemas.Form{{Name: g.OneOf("net.IPv4", "net.IPCIDR", "time.Time")}}}
		return &schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{s}, Sensitive: g.Chance(20)}
	case 9:
		return &schemas.Node{Kinds: schemas.StringKind, Format: g.OneOf("byte", "date-time", "uuid", "of-our-own"), Sensitive: g.Chance(20)}
	}
	s := schemas.Scalar{Kinds: schemas.StringKind}
	switch g.IntN(4) {
	case 0:
		s.Enum = []json.RawMessage{json.RawMessage(`"a"`), json.RawMessage(`"b"`)}
	case 1:
		s.Patterns = []schemas.Pattern{{Regexp: "^[ab]*$"}, {Regexp: "bb", Negated: true}}[:1+g.IntN(2)]
	case 2:
		s.MinRunes, s.MaxRunes = &schemas.Limit{Count: 1}, &schemas.Limit{Count: 3}
	}
	n := &schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{s}, Sensitive: g.Chance(10)}
	if len(s.Enum) > 0 && g.Chance(40) {
		n.Default = json.RawMessage(`"a"`)
	}
	return n
}

func (g *grammar) formList(depth int) *schemas.Node {
	l := &schemas.List{Items: g.formNode(depth - 1)}
	switch g.IntN(5) {
	case 0:
		l.Type, l.Items = schemas.ListSet, g.formScalar()
		l.Unique = l.Items.Kinds&(schemas.ListKind|schemas.StructKind) == 0
		if l.Items.Kinds == schemas.AnyKind {
			l.Type = "" // an item may be null
		}
	case 1:
		l.Type, l.MapKeys, l.Items = schemas.ListMap, []string{"name"}, g.formStruct(depth-1)
		l.Items.Kinds, l.Items.Union, l.Items.Default = schemas.StructKind, nil, nil
		fields := slices.DeleteFunc(l.Items.Struct.Fields, func(f schemas.Field) bool { return f.Name == "name" || f.Name == "port" })
		l.Items.Struct.Fields = append(fields, schemas.Field{Name: "name", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.StringKind}})
		if g.Chance(50) {
			l.MapKeys = append(l.MapKeys, "port")
			l.Items.Struct.Fields = append(l.Items.Struct.Fields, schemas.Field{Name: "port", Presence: schemas.Regular, Schema: &schemas.Node{
				Kinds: schemas.IntegerKind, Scalars: []schemas.Scalar{{Kinds: schemas.IntegerKind}}, Default: json.RawMessage("80")}})
		}
	case 2:
		l.Type = schemas.ListAtomic
	}
	if g.Chance(20) {
		l.MinItems = &schemas.Limit{Count: 1}
	}
	if g.Chance(20) {
		l.MaxItems = &schemas.Limit{Count: 2}
	}
	return &schemas.Node{Kinds: schemas.ListKind, List: l}
}

func (g *grammar) formStruct(depth int) *schemas.Node {
	s := &schemas.Struct{}
	n := &schemas.Node{Kinds: schemas.StructKind, Struct: s}
	if g.Chance(15) {
		s.Patterns = []schemas.KeyPattern{{Key: &schemas.Node{Kinds: schemas.StringKind}, Value: g.formNode(depth - 1)}}
	} else {
		for _, name := range []string{"a", "b", "c", "d-e"}[:1+g.IntN(4)] {
			s.Fields = append(s.Fields, schemas.Field{Name: name, Presence: []schemas.Presence{schemas.Required, schemas.Regular, schemas.Optional, schemas.Optional}[g.IntN(4)], Schema: g.formNode(depth - 1)})
		}
		s.Open = g.Chance(10)
		switch g.IntN(6) {
		case 0:
			n.Embedded = true
		case 1:
			n.Union = g.formUnion(s, depth)
		case 2:
			s.Conditions = []schemas.Condition{{When: &schemas.Guard{Op: "present", Field: "a"}, Fields: []schemas.Field{
				{Name: "when", Presence: schemas.Required, Schema: g.formNode(depth - 1)},
				{Name: "a", Presence: schemas.Optional, Schema: g.formNode(depth - 1)},
			}}}
			if g.Chance(50) {
				s.Conditions = append(s.Conditions, schemas.Condition{When: &schemas.Guard{Op: "absent", Field: "a"}, Fields: []schemas.Field{
					{Name: "when", Presence: schemas.Optional, Schema: g.formNode(depth - 1)}}})
			}
		}
	}
	if g.Chance(10) {
		s.MinFields = &schemas.Limit{Count: 1}
	}
	if g.Chance(10) {
		s.MaxFields = &schemas.Limit{Count: 2}
	}
	if g.Chance(20) {
		s.Type = g.OneOf(schemas.MapAtomic, schemas.MapGranular)
	}
	return n
}

// formUnion returns a union and adds the fields of all its arms to s.
func (g *grammar) formUnion(s *schemas.Struct, depth int) *schemas.Union {
	u := &schemas.Union{}
	if g.Chance(60) {
		u.Discriminator = "type"
		s.Fields = append(s.Fields, schemas.Field{Name: "type", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.StringKind}})
	}
	for _, name := range []string{"x", "y"} {
		own := schemas.Field{Name: name, Presence: []schemas.Presence{schemas.Required, schemas.Optional}[g.IntN(2)], Schema: g.formNode(depth - 1)}
		arm := &schemas.Struct{Open: s.Open, Fields: append(slices.Clone(s.Fields), own)}
		a := schemas.Arm{Struct: arm}
		if u.Discriminator != "" {
			value, _ := json.Marshal(name)
			a.Values = []json.RawMessage{value}
			arm.Fields[len(arm.Fields)-2].Schema = &schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, Enum: a.Values}}}
		}
		u.Arms = append(u.Arms, a)
		defer func() {
			own.Presence = schemas.Optional
			s.Fields = append(s.Fields, own)
		}()
	}
	return u
}

// formLogic returns random logic for values that n admits.
func (g *grammar) formLogic(n *schemas.Node, depth int) *schemas.Logic {
	about := func() *schemas.Node {
		m := &schemas.Node{Kinds: schemas.AnyKind}
		switch {
		case n.Struct != nil:
			m.Struct = &schemas.Struct{Open: true}
			for _, f := range n.Struct.Fields {
				if g.Chance(50) {
					m.Struct.Fields = append(m.Struct.Fields, schemas.Field{Name: f.Name, Presence: []schemas.Presence{schemas.Required, schemas.Optional}[g.IntN(2)], Schema: &schemas.Node{Kinds: schemas.AnyKind}})
				}
			}
			if g.Chance(10) {
				m.Struct.Fields = append(m.Struct.Fields, schemas.Field{Name: "foreign", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StringKind}})
			}
			if g.Chance(20) {
				m.Struct.MaxFields = &schemas.Limit{Count: 1}
			}
		case n.List != nil:
			m.List = &schemas.List{MinItems: &schemas.Limit{Count: g.IntN(3)}}
			if g.Chance(30) {
				m.List.Items = g.formScalar()
			}
		default:
			m = g.formScalar()
			m.Default, m.Format = nil, ""
			if g.Chance(50) {
				m.Kinds = schemas.AnyKind
			}
		}
		if depth > 0 && g.Chance(20) {
			m.Logic = g.formLogic(n, depth-1)
		}
		return m
	}
	l := &schemas.Logic{}
	switch g.IntN(5) {
	case 0:
		l.AllOf = []*schemas.Node{about(), about()}
	case 1:
		l.AnyOf = []*schemas.Node{about(), about()}
	case 2:
		l.OneOf = []*schemas.Node{about(), about()}
	case 3:
		l.Not = about()
	default:
		l.AnyOf, l.Not = []*schemas.Node{about(), about()}, about()
	}
	return l
}

// formAdmits reports whether a node admits a value, by a simple interpretation of the form.
func formAdmits(n *schemas.Node, x any) bool {
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
				if l.Type == schemas.ListMap {
					id = ""
					for _, k := range l.MapKeys {
						id += asJSON(item.(map[string]any)[k]) + ","
					}
				}
				if (l.Unique || l.Type == schemas.ListSet || l.Type == schemas.ListMap) && seen[id] {
					return false
				}
				seen[id] = true
			}
		}
	case map[string]any:
		if n.Struct != nil && !holdsStruct(n.Struct, x) {
			return false
		}
		if n.Union != nil && !slices.ContainsFunc(n.Union.Arms, func(a schemas.Arm) bool { return holdsStruct(a.Struct, x) }) {
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

func holdsLogic(l *schemas.Logic, x any) bool {
	count := func(nodes []*schemas.Node) (k int) {
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

func holdsStruct(s *schemas.Struct, x map[string]any) bool {
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
		if !ok && f.Presence != schemas.Optional || ok && !formAdmits(f.Schema, v) {
			return false
		}
	}
	for k, v := range x {
		for _, p := range s.Patterns {
			if !known[k] && !formAdmits(p.Value, v) {
				return false
			}
		}
		if !known[k] && !s.Open && len(s.Patterns) == 0 && !schemas.ServerOwned(k) {
			return false
		}
	}
	return true
}

func formKind(x any) schemas.Kinds {
	switch x.(type) {
	case nil:
		return schemas.NullKind
	case bool:
		return schemas.BoolKind
	case int64:
		return schemas.IntegerKind
	case float64:
		return schemas.NumberKind
	case string:
		return schemas.StringKind
	case []any:
		return schemas.ListKind
	}
	return schemas.StructKind
}

func holdsScalar(n *schemas.Node, kind schemas.Kinds, x any) bool {
	about := n.Alternatives(kind)
	if kind == schemas.IntegerKind {
		about = n.Alternatives(schemas.IntegerKind | schemas.NumberKind)
	}
	alone := &schemas.Node{Kinds: n.Kinds | schemas.IntegerKind, Scalars: n.Scalars}
	if n.Format == schemas.FormatByte || n.Format == schemas.FormatDateTime {
		alone.Format = n.Format
	}
	c, err := program.NewChecker(alone)
	if err != nil {
		panic(err)
	}
	if kind&schemas.ScalarKinds != 0 {
		if len(c.Validate(x)) > 0 {
			return false
		}
	}
	if text, ok := x.(string); ok && strfmt.Default.ContainsName(n.Format) && !strfmt.Default.Validates(n.Format, text) {
		return false
	}
	return len(about) == 0 || slices.ContainsFunc(about, func(s *schemas.Scalar) bool {
		if s.MultipleOf != nil {
			m, _ := jsonvalue.ParseDecimal(s.MultipleOf.Value)
			v, err := jsonvalue.ParseDecimal(strings.TrimSuffix(fmt.Sprint(x), ".0"))
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

// formSamples are strings that pass CUE's tests.
var formSamples = map[string]any{"net.IPv4": "10.1.2.3", "net.IPCIDR": "10.1.0.0/16", "time.Time": "2026-01-02T03:04:05.678+01:00"}
