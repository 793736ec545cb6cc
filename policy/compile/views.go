package compile

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"github.com/google/cel-go/cel"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/wording"
)

// maxViews is the maximum number of views of a bundle: each one over a kind makes its writes cost more.
const maxViews = 200

// views compiles the views of all teams. The kinds are known.
func (c *compiler) views(v cue.Value, f *policy.Form) {
	first := map[string]*policy.View{}
	for team, t := range c.Fields(v, "teams") {
		for name, x := range c.Fields(t, "views") {
			if other := first[name]; other != nil {
				c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("the view %q is defined twice", name), "the other one is "+other.ID+wording.At(other.Source.String()))
				continue
			}
			view, ok := c.view(team, name, x)
			first[name] = &view
			if c.brokenViews[name] = !ok; ok {
				f.Views = append(f.Views, view)
			}
		}
	}
	slices.SortFunc(f.Views, func(a, b policy.View) int { return strings.Compare(a.Name, b.Name) })
	c.viewNames(f)
}

// viewNames rejects views whose names clients would take for something else.
func (c *compiler) viewNames(f *policy.Form) {
	kinds := map[string]*policy.View{}
	for i := range f.Views {
		view := &f.Views[i]
		if i == maxViews {
			c.Add(view.Source, view.ID, fmt.Sprintf("a bundle has at most %d views", maxViews), "leave some out")
		}
		if other := kinds[strings.ToLower(view.KindName())]; other != nil {
			c.Add(view.Source, view.ID, fmt.Sprintf("the views %q and %q have the same kind, %s", other.Name, view.Name, view.KindName()), "the other one is "+other.ID+wording.At(other.Source.String()))
		}
		kinds[strings.ToLower(view.KindName())] = view
		for j := range f.Kinds {
			k := &f.Kinds[j]
			what := ""
			switch {
			case view.Name == k.Plural:
				what = "plural"
			case view.Name == k.Singular, strings.EqualFold(view.KindName(), k.Singular):
				what = "singular"
			case slices.Contains(k.ShortNames, view.Name):
				what = "short name"
			case slices.Contains(k.Categories, view.Name):
				what = "category"
			default:
				continue
			}
			where := wording.At(k.Source.String())
			if k.Builtin {
				where = ", which is built in"
			}
			c.Add(view.Source, view.ID, fmt.Sprintf("the name of the view %q is the %s of %s%s: clients would take either", view.Name, what, k.Resource(), where), "choose another one")
			break
		}
		for _, group := range policy.ResourcesOf(nil, nil).Groups() {
			if policy.ResourcesOf(nil, nil).Has(group, view.Name) {
				c.Add(view.Source, view.ID, fmt.Sprintf("the name of the view %q is that of a resource of the API group %q: clients would take either", view.Name, group), "choose another one")
			}
		}
	}
}

// view compiles a view; false if it has a mistake, or its kind has one.
func (c *compiler) view(team, name string, v cue.Value) (view policy.View, ok bool) {
	view = policy.View{ID: team + "/views/" + name, Name: name, Source: evaluation.Position(v)}
	said := len(c.Diags)
	if !c.Sound(v) {
		return view, false
	}
	c.DecodeField(v, "kind", &view.Kind)
	c.DecodeField(v, "version", &view.Version)
	c.DecodeField(v, "description", &view.Description)
	k, version := c.servedVersion(v, view.Kind, view.Version)
	if version == nil {
		return view, false
	}
	of := objectTypeOf(k, version)
	e := &viewExpressions{c, of, map[string]*expr.Scope{}}
	if filter := v.LookupPath(cue.ParsePath("filter")); filter.Exists() {
		view.Filter, _ = e.compile(filter, "boolean")
	}
	for id, x := range c.written(v, "columns") {
		column := policy.ViewColumn{Name: id}
		c.DecodeField(x, "type", &column.Type)
		c.DecodeField(x, "description", &column.Description)
		c.DecodeField(x, "priority", &column.Priority)
		if made, _ := e.compile(x.LookupPath(cue.ParsePath("expression")), column.Type); made != nil {
			column.Expression = *made
		}
		view.Columns = append(view.Columns, column)
	}
	c.viewGroups(v, &view, e)
	c.viewOrder(v, &view)
	return view, len(c.Diags) == said
}

// written yields the fields of a part in the order in which they are written, which is that of the columns that kubectl prints.
func (c *compiler) written(v cue.Value, part string) iter.Seq2[string, cue.Value] {
	type field struct {
		id string
		at schemas.Position
		cue.Value
	}
	var fields []field
	for id, x := range c.Fields(v, part) {
		fields = append(fields, field{id, evaluation.Position(x), x})
	}
	slices.SortStableFunc(fields, func(a, b field) int {
		return cmp.Or(strings.Compare(a.at.File, b.at.File), a.at.Line-b.at.Line, a.at.Column-b.at.Column)
	})
	return func(yield func(string, cue.Value) bool) {
		for _, f := range fields {
			if !yield(f.id, f.Value) {
				return
			}
		}
	}
}

// viewExpressions compiles the expressions of one view.
type viewExpressions struct {
	c      *compiler
	of     objectType
	scopes map[string]*expr.Scope
}

func (e *viewExpressions) scope(of objectType) (*expr.Scope, error) {
	if e.scopes[of.name] == nil {
		s, err := expr.Root().With(map[string]*celtype.Type{expr.VarObject: of.t})
		if err != nil {
			return nil, err
		}
		e.scopes[of.name] = s
	}
	return e.scopes[of.name], nil
}

// viewValues are the CEL types of values, by the types of columns.
var viewValues = map[string][]*cel.Type{
	"string": {cel.StringType}, "integer": {cel.IntType, cel.UintType}, "number": {cel.DoubleType, cel.IntType, cel.UintType},
	"boolean": {cel.BoolType}, "date": {cel.TimestampType},
}

// compile checks the expression in a value, whose result must be of a column's type. It returns the type of a number: integer
// or number.
func (e *viewExpressions) compile(x cue.Value, want string) (*policy.Expression, string) {
	c := e.c
	text, err := x.String()
	if err != nil {
		c.Decode(x, &text)
		return nil, ""
	}
	at, path := evaluation.Position(x), x.Path().String()
	made, checked := c.expression(text, path, at, nil, []objectType{e.of}, e.scope)
	if made == nil {
		return nil, ""
	}
	is := checked[0].Type
	if is.IsExactType(cel.DynType) || slices.ContainsFunc(viewValues[want], is.IsExactType) {
		number := "number"
		if is.IsExactType(cel.IntType) || is.IsExactType(cel.UintType) {
			number = "integer"
		}
		return made, number
	}
	hint := ""
	for _, kind := range []string{"string", "integer", "number", "boolean", "date"} {
		if slices.ContainsFunc(viewValues[kind], is.IsExactType) {
			hint = fmt.Sprintf("its value is %s %s", article(kind), kind)
			break
		}
	}
	if is.IsExactType(cel.StringType) && want == "date" {
		hint = "timestamp(…) makes one of a text"
	}
	c.Add(at, path, fmt.Sprintf("in CEL: its value is of type %s, and must be %s %s", cel.FormatCELType(is), article(want), want), hint)
	return nil, ""
}

func article(word string) string {
	if strings.ContainsAny(word[:1], "aeiou") {
		return "an"
	}
	return "a"
}

// viewGroups compiles groupBy and the aggregates.
func (c *compiler) viewGroups(v cue.Value, view *policy.View, e *viewExpressions) {
	var by []string
	c.DecodeField(v, "groupBy", &by)
	view.Grouped = len(by) > 0
	has := func(name string) bool {
		return slices.ContainsFunc(view.Columns, func(c policy.ViewColumn) bool { return c.Name == name })
	}
	for i, name := range by {
		if !has(name) {
			c.Add(element(v, "groupBy", i), fmt.Sprintf("%s.groupBy.%d", v.Path(), i), fmt.Sprintf("there is no column %q", name), wording.DidYouMean(name, columnNames(view), "there are"))
		}
	}
	for _, column := range view.Columns {
		if view.Grouped && !slices.Contains(by, column.Name) {
			x := v.LookupPath(cue.MakePath(cue.Str("columns"), cue.Str(column.Name)))
			c.Add(evaluation.Position(x), x.Path().String(), "a column that is not in groupBy has no single value for a group", "add it to groupBy, or make it an aggregate")
		}
	}
	for id, x := range c.written(v, "aggregates") {
		a := policy.ViewAggregate{Name: id, Type: "integer"}
		c.DecodeField(x, "function", &a.Function)
		c.DecodeField(x, "description", &a.Description)
		c.DecodeField(x, "priority", &a.Priority)
		value := x.LookupPath(cue.ParsePath("expression"))
		switch {
		case !view.Grouped:
			c.Add(evaluation.Position(x), x.Path().String(), "an aggregate needs groupBy", "name the columns whose values make a group")
		case has(id):
			c.Add(evaluation.Position(x), x.Path().String(), fmt.Sprintf("a column is named %q, too", id), "choose another name")
		case a.Function == "count" && value.Exists():
			a.Expression, _ = e.compile(value, "boolean")
		case a.Function == "count":
		case !value.Exists():
			c.Add(evaluation.Position(x), x.Path().String(), a.Function+" needs an expression", "write expression: with a number in CEL")
		default:
			a.Expression, a.Type = e.compile(value, "number")
		}
		view.Aggregates = append(view.Aggregates, a)
	}
}

// viewOrder compiles sort.
func (c *compiler) viewOrder(v cue.Value, view *policy.View) {
	c.DecodeField(v, "sort", &view.Sort)
	known := columnNames(view)
	for _, a := range view.Aggregates {
		known = append(known, a.Name)
	}
	slices.Sort(known)
	seen := map[string]bool{}
	for i, key := range view.Sort {
		name := strings.TrimPrefix(key, "-")
		at := fmt.Sprintf("%s.sort.%d", v.Path(), i)
		switch {
		case !slices.Contains(known, name):
			c.Add(element(v, "sort", i), at, fmt.Sprintf("there is no column %q to sort by", name), wording.DidYouMean(name, known, "there are"))
		case seen[name]:
			c.Add(element(v, "sort", i), at, fmt.Sprintf("rows are sorted by %q already", name), "leave it out")
		}
		seen[name] = true
	}
}

func columnNames(view *policy.View) (names []string) {
	for _, c := range view.Columns {
		names = append(names, c.Name)
	}
	return names
}
