// Package views evaluates the views of a policy: which objects a view has, and what it shows of them.
//
// An object is decoded once for all views of its kind, and only the fields that their expressions name. Evaluation is
// deterministic: it depends on the object alone, and its cost is limited in CEL's units. An expression that fails, for example
// because a field is missing, does no harm: a filter then leaves the object out, and a column is null.
package views

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/celtype"
)

// View is a view that can be evaluated. It is immutable and safe for concurrent use.
type View struct {
	// Kind is the kind of the view's rows.
	Kind *policy.Kind
	Form *policy.View
	// Resource is that of the view, and Source that of its objects as they are stored.
	Resource, Source schema.GroupResource

	filter     *program
	columns    []column
	aggregates []aggregate
	sort       []sortKey
	selectable []int  // the columns and aggregates that are selectable fields
	head       string // of each row: apiVersion and kind
	wanted     *wanted
	reads      *celtype.Type
}

type column struct {
	name string
	kind string
	*program
}

type aggregate struct {
	name, function string
	integer        bool
	*program       // nil for the count of all objects
}

// sortKey is a column or aggregate by which rows are sorted.
type sortKey struct {
	at         int // in the columns, and then in the aggregates
	descending bool
}

// program is an expression, and its quick form: see quick.go.
type program struct {
	*expr.Program
	chain *chain    // nil if the expression is no chain of fields
	quick condition // nil if the expression has no quick form
}

type keptView struct{}

// Of returns the view of a version of a kind of rows. It is made at the first call.
func Of(rows *policy.Version) (*View, error) {
	made := rows.Keep(keptView{}, func() any {
		v, err := newView(rows.Kind)
		if err != nil {
			return err
		}
		return v
	})
	if err, failed := made.(error); failed {
		return nil, err
	}
	return made.(*View), nil
}

func newView(k *policy.Kind) (*View, error) {
	v := &View{Kind: k, Form: k.View, Resource: k.GroupResource(), Source: k.Reads.Kind.Stored().GroupResource(),
		head: fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{`, policy.ViewsGroup+"/"+policy.ViewsVersion, k.Kind.Kind)}
	v.reads = expr.ResourceType(k.Reads.Kind.Kind, k.Reads.Version)
	v.wanted = &wanted{}
	var err error
	load := func(e *policy.Expression) *program {
		if e == nil || err != nil {
			return nil
		}
		p := &program{}
		var selections []expr.Selection
		if selections, err = expr.Selections(e.Checked); err != nil {
			return nil
		}
		for _, s := range selections {
			if s.Variable == expr.VarObject {
				v.wanted.add(v.reads, s.Fields)
			}
		}
		p.Program, err = expr.Load(e.Checked, e.Text)
		if parsed := (quickly{v.reads}).parse(e); parsed != nil {
			p.chain, p.quick = quickly{v.reads}.chain(parsed, false), quickly{v.reads}.condition(parsed)
		}
		return p
	}
	v.filter = load(v.Form.Filter)
	places := map[string]int{}
	for i := range v.Form.Columns {
		c := &v.Form.Columns[i]
		places[c.Name] = len(places)
		v.columns = append(v.columns, column{c.Name, c.Type, load(&c.Expression)})
	}
	for i := range v.Form.Aggregates {
		a := &v.Form.Aggregates[i]
		places[a.Name] = len(places)
		v.aggregates = append(v.aggregates, aggregate{a.Name, a.Function, a.Type == "integer", load(a.Expression)})
	}
	for _, path := range k.Versions[0].SelectableFields {
		v.selectable = append(v.selectable, places[strings.TrimPrefix(path, "."+policy.ColumnsField+".")])
	}
	for _, key := range v.Form.Sort {
		name, descending := strings.CutPrefix(key, "-")
		v.sort = append(v.sort, sortKey{places[name], descending})
	}
	if err != nil {
		return nil, fmt.Errorf("views: %s: %w", v.Form.Name, err)
	}
	return v, nil
}

// Sorted reports whether rows are in another order than by namespace and name.
func (v *View) Sorted() bool { return len(v.sort) > 0 }

// Grouped reports whether a row stands for a group of objects.
func (v *View) Grouped() bool { return v.Form.Grouped }

// Reader decodes objects for some views of one version of a kind. It is safe for concurrent use.
type Reader struct {
	wanted *wanted
	reads  *celtype.Type
}

// NewReader returns a reader for views that read the same version of a kind.
func NewReader(of []*View) *Reader {
	r := &Reader{wanted: &wanted{}, reads: of[0].reads}
	for _, v := range of {
		r.wanted.join(v.wanted)
	}
	return r
}

// Object is a decoded object. It is used by one goroutine.
type Object struct {
	value   ref.Val
	content map[string]any
	identity
}

// Read decodes an object, given as its JSON in the version that the views read.
func (r *Reader) Read(json []byte) *Object {
	o := &Object{}
	o.content = r.wanted.object(json, &o.identity)
	o.value = r.reads.Value(o.content)
	return o
}

// ResolveName implements interpreter.Activation.
func (o *Object) ResolveName(name string) (any, bool) { return o.value, name == expr.VarObject }

// Parent implements interpreter.Activation.
func (o *Object) Parent() interpreter.Activation { return nil }

// Row is what a view shows of one object.
type Row struct {
	// Values are those of the columns.
	Values []Value
	// Aggregated are the values that the object adds to aggregates, see [Groups].
	Aggregated []Value
	// Failed is the number of expressions that failed.
	Failed int
}

// costOfObject is the cost limit of the expressions of a view for one object.
const costOfObject = 1_000_000

// Row evaluates the view for an object. ok is false if the filter leaves the object out.
func (v *View) Row(o *Object) (row Row, ok bool) {
	budget := expr.Budget(costOfObject)
	if v.filter != nil {
		in, err := v.filter.holds(o, &budget)
		if err != nil {
			return Row{Failed: 1}, false
		}
		if !in {
			return Row{}, false
		}
	}
	row.Values = make([]Value, len(v.columns), len(v.columns)+len(v.aggregates))
	for i := range v.columns {
		var err error
		if row.Values[i], err = v.columns[i].eval(o, &budget, v.columns[i].kind); err != nil {
			row.Failed++
		}
	}
	if len(v.aggregates) == 0 {
		return row, true
	}
	row.Aggregated = make([]Value, len(v.aggregates))
	for i := range v.aggregates {
		a := &v.aggregates[i]
		if a.program == nil {
			row.Aggregated[i] = Value{kind: boolean, integer: 1}
			continue
		}
		var err error
		if row.Aggregated[i], err = a.eval(o, &budget, a.takes()); err != nil {
			row.Failed++
		}
	}
	return row, true
}

// takes returns the type of the values of an aggregate's expression.
func (a *aggregate) takes() string {
	switch {
	case a.function == "count":
		return "boolean"
	case a.integer:
		return "integer"
	}
	return "number"
}

// errMissing reports that a field is missing.
var errMissing = errors.New("views: a field is missing")

// holds evaluates a condition.
func (p *program) holds(o *Object, budget *expr.Budget) (bool, error) {
	if p.quick != nil {
		switch p.quick(o.content) {
		case yes:
			return true, nil
		case no:
			return false, nil
		case failed:
			return false, errMissing
		}
	}
	return p.Bool(context.Background(), o, budget)
}

// eval returns the value of an expression, null if it fails.
func (p *program) eval(o *Object, budget *expr.Budget, kind string) (Value, error) {
	if p.chain != nil {
		if value, found, sure := p.chain.find(o.content); sure && found {
			return valueOf(p.chain.t.Value(value), kind)
		} else if sure {
			return Value{}, errMissing
		}
	} else if p.quick != nil && kind == "boolean" {
		switch p.quick(o.content) {
		case yes:
			return Value{kind: boolean, integer: 1}, nil
		case no:
			return Value{kind: boolean}, nil
		case failed:
			return Value{}, errMissing
		}
	}
	result, err := p.Eval(context.Background(), o, budget)
	if err != nil {
		return Value{}, err
	}
	return valueOf(result, kind)
}

// valueOf returns a result of CEL as a value of a column's type. null is the value of a null, and of a result of another type,
// which is an error.
func valueOf(result ref.Val, kind string) (v Value, err error) {
	switch x := result.(type) {
	case types.Null:
		return Value{}, nil
	case types.String:
		if kind == "string" && len(x) <= maxText {
			return Value{kind: text, text: strings.ToValidUTF8(string(x), "\uFFFD")}, nil
		}
	case types.Bool:
		if kind == "boolean" {
			v = Value{kind: boolean}
			if x {
				v.integer = 1
			}
			return v, nil
		}
	case types.Int:
		return numberOf(int64(x), kind)
	case types.Uint:
		if x <= 1<<63-1 {
			return numberOf(int64(x), kind)
		}
	case types.Double:
		if kind == "number" && finite(float64(x)) {
			return Value{kind: float, float: float64(x) + 0}, nil // -0 is 0
		}
	case types.Timestamp:
		if kind == "date" {
			return dateOf(x.Time), nil
		}
	}
	return Value{}, fmt.Errorf("views: a result of type %s is no %s", result.Type().TypeName(), kind)
}

func numberOf(n int64, kind string) (Value, error) {
	switch kind {
	case "integer":
		return Value{kind: integer, integer: n}, nil
	case "number":
		return Value{kind: float, float: float64(n)}, nil
	}
	return Value{}, fmt.Errorf("views: a number is no %s", kind)
}
