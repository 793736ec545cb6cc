package crd

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/schemas"
)

const number = schemas.IntegerKind | schemas.NumberKind

// A position is the place of a schema in a definition and in objects.
type position struct {
	at    path   // path in the definition
	rules string // path in objects, as in [schemas.Rule]
	top   bool   // the schema describes the whole object

	// nested says that the schema is in a logical operator, where it only validates.
	nested bool
	// preserves says that the enclosing value, a list, preserves unknown fields.
	preserves bool
	// metadata says that the schema is in the metadata of an embedded object, which is pruned as
	// metadata.
	metadata bool
}

func (p position) descend(names ...string) position {
	p.at, p.top, p.preserves = p.at.join(names...), false, false
	return p
}

var serverOwned = []string{"apiVersion", "kind", "metadata"}

// root translates the schema of a version.
func (t *translator) root(s *apiextensions.JSONSchemaProps, at path) *schemas.Node {
	p := position{at: at, top: true}
	for _, name := range serverOwned[:2] {
		if x, ok := s.Properties[name]; ok {
			t.nothingElse(x, p.descend("properties", name), func(x *apiextensions.JSONSchemaProps) { x.Type, x.Format = "", "" })
		}
	}
	if x, ok := s.Properties["metadata"]; ok {
		t.names(x, p.descend("properties", "metadata"))
	}
	return t.node(s, p)
}

// nothingElse rejects a schema with rules other than those that without removes.
func (t *translator) nothingElse(s apiextensions.JSONSchemaProps, p position, without func(*apiextensions.JSONSchemaProps)) {
	without(&s)
	s.Description, s.Title, s.Example, s.ExternalDocs = "", "", nil, nil
	if !saysNothing(&s) {
		t.refuse(p.at, "what it says of "+p.at[len(p.at)-1]+" is not enforced", "leave it out")
	}
}

func saysNothing(s *apiextensions.JSONSchemaProps) bool {
	return reflect.DeepEqual(*s, apiextensions.JSONSchemaProps{})
}

// anything returns a node that admits all values and keeps all fields.
func anything() *schemas.Node { return &schemas.Node{Kinds: schemas.AnyKind, Plain: true} }

// node translates a schema.
func (t *translator) node(s *apiextensions.JSONSchemaProps, p position) *schemas.Node {
	n := &schemas.Node{Kinds: t.kinds(s, p), Plain: true, DropNull: !p.nested && !s.Nullable && !p.top}
	n.Source = t.locate(p.at)
	if !p.nested {
		n.Doc = s.Description
	}
	t.format(n, s, p)
	if len(s.Enum) > 0 {
		t.enumKinds(n, s, p)
	}
	t.scalars(n, s, p)
	preserves := s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields || p.preserves
	n.Keeps = (preserves || p.metadata) && !n.Kinds.Has(schemas.StructKind)
	if n.Kinds.Has(schemas.ListKind) {
		t.list(n, s, p, preserves)
	}
	if n.Kinds.Has(schemas.StructKind) {
		t.fields(n, s, p, preserves)
	}
	t.logic(n, s, p)
	if s.Default != nil && *s.Default != nil {
		text, err := json.Marshal(*s.Default)
		if err != nil {
			t.refuse(p.at, err.Error(), "")
		}
		n.Default = text
	}
	for i, r := range s.XValidations {
		at := p.at.join("x-kubernetes-validations", strconv.Itoa(i))
		rule := schemas.Rule{
			Name: fmt.Sprintf("%s#%d", p.rules, i), Path: p.rules, Rule: r.Rule, Message: r.Message, MessageExpression: r.MessageExpression, FieldPath: r.FieldPath,
			OptionalOldSelf: r.OptionalOldSelf != nil && *r.OptionalOldSelf,
			Source:          t.locate(at), RuleSource: t.locate(at.join("rule")), PathSource: t.locate(at), MessageSource: t.locate(at.join("messageExpression")),
		}
		if r.Reason != nil {
			rule.Reason = string(*r.Reason)
		}
		t.rules = append(t.rules, rule)
	}
	return n
}

func (t *translator) kinds(s *apiextensions.JSONSchemaProps, p position) (k schemas.Kinds) {
	switch s.Type {
	case "boolean":
		k = schemas.BoolKind
	case "integer":
		k = schemas.IntegerKind
	case "number":
		k = number
	case "string":
		k = schemas.StringKind
	case "array":
		k = schemas.ListKind
	case "object":
		k = schemas.StructKind
	default:
		k = schemas.AnyKind
	}
	if s.XIntOrString {
		k = schemas.IntegerKind | schemas.StringKind
	}
	if s.Nullable {
		k |= schemas.NullKind
	}
	return k
}

// format translates a format. Formats that upstream does not know are ignored.
func (t *translator) format(n *schemas.Node, s *apiextensions.JSONSchemaProps, p position) {
	if s.Format == "" {
		return
	}
	of := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: spec.StringOrArray{s.Type}}}
	if s.XIntOrString {
		of.Type = spec.StringOrArray{"integer", "string"}
	}
	if len(apivalidation.GetUnrecognizedFormats(of, environment.DefaultCompatibilityVersion())) > 0 {
		t.warn(p.at.join("format"), fmt.Sprintf("the format %q is not known and not checked, as in Kubernetes", s.Format))
		return
	}
	n.Format = s.Format
	if n.Kinds == schemas.AnyKind { // upstream: a value with a format is a string, unless it is a list
		n.Kinds = schemas.StringKind | schemas.ListKind | schemas.NullKind
	}
}

// beyondFloat32 is the smallest number that does not round to a 32-bit float.
const beyondFloat32 = "340282356779733661637539395458142568448"

// scalars translates the rules for booleans, numbers and strings.
func (t *translator) scalars(n *schemas.Node, s *apiextensions.JSONSchemaProps, p position) {
	if kinds := n.Kinds & number; kinds != 0 {
		x := schemas.Scalar{Kinds: kinds, Enum: t.enum(s, kinds)}
		if s.Minimum != nil {
			x.Minimum = t.bound(*s.Minimum, s.ExclusiveMinimum, p.at.join("minimum"))
		}
		if s.Maximum != nil {
			x.Maximum = t.bound(*s.Maximum, s.ExclusiveMaximum, p.at.join("maximum"))
		}
		if s.MultipleOf != nil {
			if x.MultipleOf = t.bound(*s.MultipleOf, false, p.at.join("multipleOf")); *s.MultipleOf <= 0 {
				t.refuse(p.at.join("multipleOf"), "it must be above 0", "")
				x.MultipleOf = nil
			}
		}
		source := t.locate(p.at.join("format"))
		switch {
		case s.Type == "integer" && s.Format == "int32":
			tightenBounds(&x, schemas.Bound{Value: strconv.Itoa(math.MinInt32), Source: source}, schemas.Bound{Value: strconv.Itoa(math.MaxInt32), Source: source})
		case s.Type == "number" && s.Format == "float":
			tightenBounds(&x, schemas.Bound{Value: "-" + beyondFloat32, Exclusive: true, Source: source}, schemas.Bound{Value: beyondFloat32, Exclusive: true, Source: source})
		}
		n.Scalars = append(n.Scalars, x)
	}
	if n.Kinds.Has(schemas.StringKind) {
		x := schemas.Scalar{Kinds: schemas.StringKind, Enum: t.enum(s, schemas.StringKind)}
		if s.Pattern != "" {
			x.Patterns = []schemas.Pattern{{Regexp: s.Pattern, Source: t.locate(p.at.join("pattern"))}}
		}
		x.MinRunes, x.MaxRunes = t.limit(s.MinLength, p.at.join("minLength")), t.limit(s.MaxLength, p.at.join("maxLength"))
		n.Scalars = append(n.Scalars, x)
	}
	if n.Kinds.Has(schemas.BoolKind) {
		n.Scalars = append(n.Scalars, schemas.Scalar{Kinds: schemas.BoolKind, Enum: t.enum(s, schemas.BoolKind)})
	}
	n.Scalars = slices.DeleteFunc(n.Scalars, func(x schemas.Scalar) bool {
		return len(x.Enum) == 0 && x.Minimum == nil && x.Maximum == nil && x.MultipleOf == nil && len(x.Patterns) == 0 && x.MinRunes == nil && x.MaxRunes == nil
	})
}

// tightenBounds tightens the bounds of x.
func tightenBounds(x *schemas.Scalar, low, high schemas.Bound) {
	value := func(b *schemas.Bound) float64 {
		f, _ := strconv.ParseFloat(b.Value, 64)
		return f
	}
	if x.Minimum == nil || value(x.Minimum) < value(&low) {
		x.Minimum = &low
	}
	if x.Maximum == nil || value(x.Maximum) > value(&high) {
		x.Maximum = &high
	}
}

// beyondExact is the number from which on floats cannot hold all integers.
const beyondExact = 1 << 53

// bound translates a bound that upstream holds as a float. The float stands for the shortest decimal
// number that parses to it. Above beyondExact it stands for its exact value.
func (t *translator) bound(x float64, exclusive bool, at path) *schemas.Bound {
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if math.Abs(x) >= beyondExact {
		text = new(big.Float).SetFloat64(x).Text('f', 0)
	}
	return &schemas.Bound{Value: text, Exclusive: exclusive, Source: t.locate(at)}
}

func (t *translator) limit(n *int64, at path) *schemas.Limit {
	if n == nil {
		return nil
	}
	return &schemas.Limit{Count: int(min(max(*n, 0), math.MaxInt32)), Source: t.locate(at)}
}

func kindOf(x any) schemas.Kinds {
	switch x := x.(type) {
	case bool:
		return schemas.BoolKind
	case int64:
		return schemas.IntegerKind
	case float64:
		if x == math.Trunc(x) {
			return schemas.IntegerKind
		}
		return schemas.NumberKind
	case string:
		return schemas.StringKind
	case []any:
		return schemas.ListKind
	case map[string]any:
		return schemas.StructKind
	}
	return schemas.NullKind
}

// enum returns the elements of an enumeration that have one of the kinds.
func (t *translator) enum(s *apiextensions.JSONSchemaProps, kinds schemas.Kinds) (list []json.RawMessage) {
	for _, x := range s.Enum {
		if kindOf(x)&kinds == 0 {
			continue
		}
		if text, err := json.Marshal(x); err == nil {
			list = append(list, text)
		}
	}
	return list
}

// enumKinds limits the kinds of the node to those of the enumeration's elements. As in upstream, null
// elements do not count.
func (t *translator) enumKinds(n *schemas.Node, s *apiextensions.JSONSchemaProps, p position) {
	var of schemas.Kinds
	for _, x := range s.Enum {
		switch kind := kindOf(x); kind {
		case schemas.ListKind, schemas.StructKind:
			if n.Kinds.Has(kind) {
				t.refuse(p.at.join("enum"), "an enumeration of lists or objects is not supported", "say with rules what they must be")
				return
			}
		case schemas.NullKind:
		default:
			of |= kind
		}
	}
	if of&number != 0 && n.Kinds.Has(schemas.NumberKind) {
		of |= number
	}
	if n.Kinds &= of; n.Kinds == 0 && p.nested {
		// An alternative that no value matches.
		n.Kinds = schemas.StringKind
		n.Scalars = append(n.Scalars, schemas.Scalar{Kinds: schemas.StringKind, MinRunes: &schemas.Limit{Count: 1}, MaxRunes: &schemas.Limit{}})
	} else if n.Kinds == 0 {
		t.refuse(p.at.join("enum"), "no element is of the type, so that nothing is valid", "")
		n.Kinds = schemas.StringKind
	}
}

func (t *translator) list(n *schemas.Node, s *apiextensions.JSONSchemaProps, p position, preserves bool) {
	l := &schemas.List{MinItems: t.limit(s.MinItems, p.at.join("minItems")), MaxItems: t.limit(s.MaxItems, p.at.join("maxItems"))}
	if s.XListType != nil {
		l.Type, l.MapKeys = *s.XListType, s.XListMapKeys
	}
	if s.Items != nil && s.Items.Schema != nil {
		in := p.descend("items")
		in.rules += "[*]"
		in.preserves = preserves
		l.Items = t.node(s.Items.Schema, in)
	}
	if l.Items != nil || l.MinItems != nil || l.MaxItems != nil || l.Type != "" {
		n.List = l
	}
}

func (t *translator) fields(n *schemas.Node, s *apiextensions.JSONSchemaProps, p position, preserves bool) {
	o := &schemas.Struct{
		Open:      preserves || p.nested || p.metadata,
		MinFields: t.limit(s.MinProperties, p.at.join("minProperties")),
		MaxFields: t.limit(s.MaxProperties, p.at.join("maxProperties")),
	}
	n.Struct = o
	if s.XMapType != nil {
		o.Type = *s.XMapType
	}
	n.Embedded = s.XEmbeddedResource
	if p.top && p.nested && (o.MinFields != nil || o.MaxFields != nil) {
		t.refuse(p.at, "the number of all fields of an object is not looked at in a logical operator", "say it beside the operator")
	}
	required := map[string]bool{}
	for _, name := range s.Required {
		required[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if p.top && slices.Contains(serverOwned, name) {
			if p.nested {
				t.refuse(p.at.join("properties", name), "what it says of "+name+" is not enforced", "leave it out")
			}
			continue
		}
		of := s.Properties[name]
		in := p.descend("properties", name)
		in.rules = joined(p.rules, name)
		in.metadata = p.metadata || s.XEmbeddedResource && slices.Contains(serverOwned, name)
		f := schemas.Field{Name: name, Presence: schemas.Optional, Schema: t.node(&of, in)}
		switch {
		case len(f.Schema.Default) > 0:
			f.Presence = schemas.Regular
		case required[name]:
			f.Presence = schemas.Required
		}
		delete(required, name)
		o.Fields = append(o.Fields, f)
	}
	if n.Embedded {
		t.embedded(o)
	}
	if a := s.AdditionalProperties; a != nil {
		t.additional(n, a, p)
	}
	t.required(n, required, p)
}

// embedded adds the fields that every Kubernetes object has.
func (t *translator) embedded(o *schemas.Struct) {
	for i, kinds := range []schemas.Kinds{schemas.StringKind, schemas.StringKind, schemas.StructKind} {
		name := serverOwned[i]
		if !slices.ContainsFunc(o.Fields, func(f schemas.Field) bool { return f.Name == name }) {
			o.Fields = append(o.Fields, schemas.Field{Name: name, Presence: schemas.Optional, Schema: &schemas.Node{Kinds: kinds, Plain: true}})
		}
	}
}

// additional translates additionalProperties. Without a schema, undeclared fields keep their values, but
// structs in them lose their fields.
func (t *translator) additional(n *schemas.Node, a *apiextensions.JSONSchemaPropsOrBool, p position) {
	o := n.Struct
	key := &schemas.Node{Kinds: schemas.StringKind}
	switch in := p.descend("additionalProperties"); {
	case a.Schema != nil:
		in.rules += "[*]"
		o.Patterns = []schemas.KeyPattern{{Key: key, Value: t.node(a.Schema, in)}}
	case a.Allows && p.nested:
	case a.Allows:
		value := anything()
		value.Bare = !p.metadata
		o.Patterns = []schemas.KeyPattern{{Key: key, Value: value}}
	case p.nested && !p.top:
		o.Open = false
	case p.nested:
		t.refuse(in.at, "it would refuse apiVersion, kind and metadata as well", "leave it out")
	default: // unknown fields are kept, and Validate rejects them
		o.Open, o.MaxFields = true, &schemas.Limit{Source: t.locate(in.at)}
		if len(o.Fields) > 0 {
			t.refuse(in.at, "additionalProperties must not be false", "leave it out: unknown fields are pruned")
		}
	}
}

// required adds required fields that are not among the properties.
func (t *translator) required(n *schemas.Node, names map[string]bool, p position) {
	var fields []schemas.Field
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if p.top && slices.Contains(serverOwned, name) {
			if p.nested {
				t.refuse(p.at.join("required"), name+" is always there", "leave it out")
			}
			continue
		}
		x := anything()
		x.Source = t.locate(p.at.join("required"))
		fields = append(fields, schemas.Field{Name: name, Presence: schemas.Required, Schema: x})
	}
	if fields != nil {
		demand(n, &schemas.Node{Kinds: schemas.AnyKind, Plain: true, Struct: &schemas.Struct{Open: true, Fields: fields}})
	}
}

// demand adds nodes that the value must satisfy too.
func demand(n *schemas.Node, also ...*schemas.Node) {
	if n.Logic == nil {
		n.Logic = &schemas.Logic{}
	}
	n.Logic.AllOf = append(n.Logic.AllOf, also...)
}

func (t *translator) logic(n *schemas.Node, s *apiextensions.JSONSchemaProps, p position) {
	all := func(of []apiextensions.JSONSchemaProps, name string) (nodes []*schemas.Node) {
		for i := range of {
			in := p.descend(name, strconv.Itoa(i))
			in.nested, in.top = true, p.top
			nodes = append(nodes, t.node(&of[i], in))
		}
		return nodes
	}
	if len(s.AllOf) > 0 {
		demand(n, all(s.AllOf, "allOf")...)
	}
	l := schemas.Logic{OneOf: all(s.OneOf, "oneOf")}
	if !onlyTypes(s) {
		l.AnyOf = all(s.AnyOf, "anyOf")
	}
	if s.Not != nil {
		in := p.descend("not")
		in.nested, in.top = true, p.top
		l.Not = t.node(s.Not, in)
	}
	if len(l.OneOf) > 0 || len(l.AnyOf) > 0 || l.Not != nil {
		if n.Logic != nil {
			l.AllOf = n.Logic.AllOf
		}
		n.Logic = &l
	}
}

// onlyTypes reports whether the schema's alternatives only repeat the integer and string types of
// x-kubernetes-int-or-string.
func onlyTypes(s *apiextensions.JSONSchemaProps) bool {
	if !s.XIntOrString || len(s.AnyOf) != 2 {
		return false
	}
	types := map[string]bool{}
	for _, of := range s.AnyOf {
		types[of.Type] = true
		if of.Type = ""; !reflect.DeepEqual(of, apiextensions.JSONSchemaProps{}) {
			return false
		}
	}
	return types["integer"] && types["string"]
}

// joined returns the path of a field below another path, as in [schemas.Rule].
func joined(rules, name string) string {
	if strings.ContainsAny(name, `.[]*"\`) || name == "" {
		text, err := json.Marshal(name)
		if err != nil {
			panic(err) // a string always encodes
		}
		return rules + "[" + string(text) + "]"
	}
	if rules == "" {
		return name
	}
	return rules + "." + name
}
