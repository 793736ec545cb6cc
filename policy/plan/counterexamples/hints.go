package counterexamples

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/samples"
)

// hints are what expressions say about the requests that could be decided differently: literals, and the fields that
// they read.
type hints struct {
	words   []string
	numbers []any
	paths   [][]string
	// labels are those of namespaces; the first are none.
	labels []map[string]string
	// request says that an expression reads more than the object.
	request bool
}

func newHints() *hints { return &hints{labels: []map[string]string{nil}} }

// expression adds the literals and the fields of an expression.
func (h *hints) expression(e *policy.Expression) {
	constants, err := expr.Constants(e.Checked)
	if err != nil {
		return
	}
	for _, c := range constants {
		h.literal(c)
	}
	selections, err := expr.SelectionsWithOptional(e.Checked)
	if err != nil {
		return
	}
	for _, s := range selections {
		switch s.Variable {
		case expr.VarObject, expr.VarOldObject:
			h.path(s.Fields)
		case expr.VarNamespace:
			h.request = true
			if len(s.Fields) == 3 && s.Fields[0] == "metadata" && s.Fields[1] == "labels" {
				h.label(s.Fields[2])
			}
		case expr.VarParams:
		default:
			h.request = h.request || !strings.HasPrefix(s.Variable, expr.VarVariables)
		}
	}
}

func (h *hints) path(path []string) {
	if len(path) > 0 && !slices.ContainsFunc(h.paths, func(p []string) bool { return slices.Equal(p, path) }) {
		h.paths = append(h.paths, path)
	}
}

// label adds labels of namespaces: the name with each word.
func (h *hints) label(name string) {
	for _, word := range append([]string{"x"}, h.words...) {
		h.labels = append(h.labels, map[string]string{name: word})
	}
}

func (h *hints) literal(x any) {
	switch v := x.(type) {
	case string:
		if !slices.Contains(h.words, v) {
			h.words = append(h.words, v)
		}
	case int64, float64:
		if !slices.Contains(h.numbers, x) {
			h.numbers = append(h.numbers, x)
		}
	case []any:
		for _, item := range v {
			h.literal(item)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			h.literal(k)
			h.literal(v[k])
		}
	}
}

// validation adds all of an admission rule.
func (h *hints) validation(r *policy.Validation) {
	h.rule(&r.Match, r.Params, r.Variables)
	for i := range r.Validations {
		h.expression(&r.Validations[i].Expression)
	}
}

// rule adds what validations and mutations have in common.
func (h *hints) rule(m *policy.Match, params json.RawMessage, variables []policy.Variable) {
	if len(params) > 0 {
		if params, err := jsonvalue.Decode(params); err == nil {
			h.literal(params)
		}
	}
	for i := range variables {
		h.expression(&variables[i].Expression)
	}
	for i := range m.Conditions {
		h.expression(&m.Conditions[i].Expression)
	}
	h.selector(m.NamespaceSelector, func(k, v string) { h.labels = append(h.labels, map[string]string{k: v}) })
	h.selector(m.ObjectSelector, func(k, v string) {
		h.literal(v)
		h.path([]string{"metadata", "labels", k})
	})
}

func (h *hints) selector(s *metav1.LabelSelector, each func(k, v string)) {
	if s == nil {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		each(k, s.MatchLabels[k])
	}
	for _, r := range s.MatchExpressions {
		for _, v := range append([]string{"x"}, r.Values...) {
			each(r.Key, v)
		}
	}
}

// absent stands for a field that is not set.
type absent struct{}

// fieldValues are values to try at a path of an object.
type fieldValues struct {
	path   []string
	values []any
}

// fields returns the fields that the expressions read, with values that could matter.
func (h *hints) fields(root *schemas.Node) (list []fieldValues) {
	for _, path := range h.paths {
		if f := (fieldValues{path, h.values(NodeAt(root, path))}); len(f.values) > 0 {
			list = append(list, f)
		}
	}
	return list
}

// NodeAt returns the schema at a path; nil if there is none. The name "*" is an item of a list or a value of a map.
func NodeAt(n *schemas.Node, path []string) *schemas.Node {
	for _, name := range path {
		if n == nil {
			return nil
		}
		var next *schemas.Node
		if n.List != nil && name == "*" {
			next = n.List.Items
		}
		for _, s := range n.Structs() {
			if f, ok := schemas.FieldNamed(s, name); ok && next == nil {
				next = f.Schema
			} else if !ok && next == nil && len(s.Patterns) > 0 {
				next = s.Patterns[0].Value
			}
		}
		n = next
	}
	return n
}

// values returns values for a node: those of its enumeration, those at its bounds, and those around the literals.
func (h *hints) values(n *schemas.Node) []any {
	v := &valueSet{seen: map[string]bool{}}
	v.add(absent{})
	kinds := schemas.StringKind
	if n != nil {
		kinds = n.Kinds
		for i := range n.Scalars {
			for _, text := range n.Scalars[i].Enum {
				if x, err := jsonvalue.Decode(text); err == nil {
					v.add(x)
				}
			}
			for _, b := range []*schemas.Bound{n.Scalars[i].Minimum, n.Scalars[i].Maximum} {
				if b != nil {
					if x, err := jsonvalue.Decode([]byte(b.Value)); err == nil {
						v.addNeighbours(x)
					}
				}
			}
		}
		if x, err := jsonvalue.Decode(n.Default); len(n.Default) > 0 && err == nil {
			v.add(x)
		}
	}
	if kinds&schemas.BoolKind != 0 {
		v.add(true)
		v.add(false)
	}
	if kinds&(schemas.IntegerKind|schemas.NumberKind) != 0 {
		for _, x := range h.numbers {
			v.addNeighbours(x)
		}
		v.add(int64(0))
		v.add(int64(1))
	}
	if kinds&schemas.StringKind != 0 {
		for _, w := range h.words {
			v.add(w)
			v.add(w + "x")
			v.add("x" + w)
		}
		v.add("")
		for _, x := range h.numbers {
			if size, ok := x.(int64); ok && size >= 0 && size <= 300 {
				v.add(strings.Repeat("x", int(size)))
				v.add(strings.Repeat("x", int(size)+1))
			}
		}
	}
	if kinds&schemas.ListKind != 0 && n != nil {
		h.lists(v, n)
	}
	if kinds&schemas.StructKind != 0 && n != nil {
		for _, x := range samples.Of(n)[:min(2, len(samples.Of(n)))] {
			v.add(x)
		}
		for _, word := range h.words {
			if len(n.Structs()) > 0 && len(n.Structs()[0].Patterns) > 0 {
				v.add(map[string]any{word: "x"})
			}
		}
	}
	return v.list
}

// lists adds lists of the lengths that the literals name, and of one item each.
func (h *hints) lists(v *valueSet, n *schemas.Node) {
	var items []any
	if n.List != nil && n.List.Items != nil {
		for _, x := range h.values(n.List.Items) {
			if _, is := x.(absent); !is && len(items) < 8 {
				items = append(items, x)
			}
		}
	}
	if len(items) == 0 {
		items = []any{"x"}
	}
	v.add([]any{})
	for _, x := range items {
		v.add([]any{x})
	}
	for _, x := range h.numbers {
		size, ok := x.(int64)
		if !ok || size < 0 || size > 20 {
			continue
		}
		for _, n := range []int64{size, size + 1} {
			var list []any
			for i := range n {
				list = append(list, items[int(i)%len(items)])
			}
			v.add(list)
		}
	}
}

// valueSet is values without duplicates, in order.
type valueSet struct {
	list []any
	seen map[string]bool
}

// maxValues limits the values for one field.
const maxValues = 40

func (v *valueSet) add(x any) {
	data, err := json.Marshal(x)
	key := fmt.Sprintf("%T%s", x, data)
	if err != nil || v.seen[key] || len(v.list) >= maxValues {
		return
	}
	v.seen[key] = true
	v.list = append(v.list, x)
}

// addNeighbours adds a number and its neighbours.
func (v *valueSet) addNeighbours(x any) {
	switch n := x.(type) {
	case int64:
		v.add(n)
		v.add(n + 1)
		v.add(n - 1)
	case float64:
		v.add(n)
		v.add(n + 0.5)
		v.add(n - 0.5)
	}
}

// set sets a field, and makes the objects around it. The value absent removes it.
func (o *object) set(path []string, value any) {
	if path[0] == "metadata" {
		o.setMeta(path[1:], value)
		return
	}
	setIn(o.content, path, value)
}

// get returns a field; absent if it is not set. The name "*" is the first item of a list.
func (o *object) get(path []string) any {
	var in any = o.content
	if path[0] == "metadata" {
		in = map[string]any{"metadata": map[string]any{"name": o.meta.Name, "labels": anyMap(o.meta.Labels), "annotations": anyMap(o.meta.Annotations)}}
	}
	for _, name := range path {
		switch x := in.(type) {
		case map[string]any:
			value, has := x[name]
			if !has {
				return absent{}
			}
			in = value
		case []any:
			if len(x) == 0 {
				return absent{}
			}
			in = x[0]
		default:
			return absent{}
		}
	}
	return jsonvalue.Clone(in)
}

func anyMap(texts map[string]string) map[string]any {
	m := make(map[string]any, len(texts))
	for k, v := range texts {
		m[k] = v
	}
	return m
}

func (o *object) setMeta(path []string, value any) {
	text, is := value.(string)
	switch {
	case len(path) == 1 && path[0] == "name" && is && text != "":
		o.meta.Name = text
	case len(path) == 2 && (path[0] == "labels" || path[0] == "annotations"):
		at := &o.meta.Labels
		if path[0] == "annotations" {
			at = &o.meta.Annotations
		}
		delete(*at, path[1])
		if is {
			if *at == nil {
				*at = map[string]string{}
			}
			(*at)[path[1]] = text
		}
	}
}

func setIn(in any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch x := in.(type) {
	case []any:
		if path[0] != "*" {
			return x
		}
		if len(x) == 0 {
			x = append(x, map[string]any{})
		}
		if _, remove := value.(absent); remove && len(path) == 1 {
			return x[:len(x)-1]
		}
		x[0] = setIn(x[0], path[1:], value)
		return x
	case map[string]any:
		name := path[0]
		if name == "*" {
			for _, name = range slices.Sorted(maps.Keys(x)) {
				break
			}
		}
		if _, remove := value.(absent); remove && len(path) == 1 {
			delete(x, name)
			return x
		}
		next := x[name]
		if next == nil && len(path) > 1 {
			if _, remove := value.(absent); remove {
				return x
			}
			next = map[string]any{}
			if path[1] == "*" {
				next = []any{}
			}
		}
		x[name] = setIn(next, path[1:], value)
		return x
	}
	return in
}
