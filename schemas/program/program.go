// Package program runs compiled schemas on requests: it prunes, defaults and validates objects, and
// compares an update with the stored object.
package program

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"

	"stele.dev/stele/schemas/textforms"
)

// An Option configures [New].
type Option func(*asking)

// EvaluateWith sets the evaluator of fallbacks. Without it, CUE is evaluated in this process.
func EvaluateWith(e schemas.Evaluator) Option { return func(a *asking) { a.evaluator = e } }

// A Program prunes, completes and validates objects of one kind. It is immutable and safe for concurrent
// use, as long as each goroutine has its own object. Fallbacks are evaluated by a [schemas.Evaluator].
//
// Objects are decoded JSON as sigs.k8s.io/json makes it: nil, bool, int64, float64, string, []any and
// map[string]any.
type Program struct {
	root      *check
	frozen    *frozen // the immutable parts; nil if everything may change
	sensitive bool
	secrets   [][]string // see SensitivePaths
	equates   bool       // a field must be equal to another field
	asks      bool       // CUE evaluates a part
}

// New compiles a form. It fails if the form is invalid: too deep, a bad pattern, a default that
// violates its own node. It does not evaluate CUE.
func New(n *schemas.Node, options ...Option) (*Program, error) {
	o := &asking{}
	for _, option := range options {
		option(o)
	}
	root, err := o.newCheck(n, 0)
	if err != nil {
		return nil, err
	}
	if root.kinds != schemas.StructKind {
		return nil, fmt.Errorf("schemas: the top of a schema is %s, not a struct", root.kinds)
	}
	if root.object == nil {
		root.object = &objectCheck{open: true, max: -1}
	}
	return &Program{
		root: root, frozen: newFrozen(n, false), sensitive: n.HasSensitive(), secrets: slices.Clip(n.SensitivePaths()), equates: equates(n), asks: asks(n),
	}, nil
}

// asks reports whether CUE evaluates a part of a form.
func asks(n *schemas.Node) (found bool) {
	n.Visit("", func(_ string, n *schemas.Node) {
		found = found || n.Fallback != nil || n.Union != nil && n.Union.Ambiguous != nil
	})
	return found
}

// Asks reports whether CUE evaluates a part of objects, so that defaults may be left out.
func (p *Program) Asks() bool { return p.asks }

// Validate returns all violations of the schema in a fixed order: fields as declared, then other keys
// by name. It ignores the top-level apiVersion, kind and metadata.
func (p *Program) Validate(obj map[string]any) field.ErrorList {
	v := inspections.Get().(*inspection)
	defer inspections.Put(v)
	v.path = v.path[:0]
	if p.root.logic != nil {
		v.logic(p.root.logic, obj, p.root.node.Source)
	}
	v.parts(p.root, obj, true)
	errs := v.errs
	v.errs, v.patience, v.repeats, v.scopes = nil, nil, false, v.scopes[:0]
	return errs
}

// Prepare removes unknown fields and fills in defaults, in place. It returns the paths of the removed
// fields, as Kubernetes writes them (spec.ports[0].bar), and whether the object changed.
//
// A struct that is open or has patterns is not pruned: Validate rejects the keys that no pattern
// admits. A float without a fraction becomes an int64 where the schema admits integers only. A null
// counts as absent if the field is not nullable and has a default. Top-level apiVersion, kind and
// metadata are ignored. A part that CUE could not evaluate stays as it is.
func (p *Program) Prepare(obj map[string]any) (unknown []string, changed bool) {
	unknown, changed, _ = p.TryPrepare(obj)
	return unknown, changed
}

// TryPrepare does what Prepare does, and returns an error if CUE could not evaluate a part.
func (p *Program) TryPrepare(obj map[string]any) (unknown []string, changed bool, err *field.Error) {
	return p.prepare(obj, false)
}

// TryPrepareApplied is TryPrepare for the result of server-side apply. It keeps a null that was
// applied to a field that is not nullable and has no default, so that Validate rejects it.
func (p *Program) TryPrepareApplied(obj map[string]any) (unknown []string, changed bool, err *field.Error) {
	return p.prepare(obj, true)
}

// PrepareNoting is TryPrepare, or for the result of server-side apply TryPrepareApplied. It calls left with the path of each default that
// is left out, because CUE refuses it once it is written out.
func (p *Program) PrepareNoting(obj map[string]any, applied bool, left func(path string)) (unknown []string, changed bool, err *field.Error) {
	return p.run(obj, preparation{fill: true, nulls: applied, left: left})
}

// Prune converts an object from another version in place, as Kubernetes does with the strategy None:
// it removes unknown fields, and nulls that are not admitted. It fills in no defaults. It reports
// whether the object changed.
func (p *Program) Prune(obj map[string]any) (changed bool) {
	_, changed, _ = p.run(obj, preparation{converts: true})
	return changed
}

func (p *Program) prepare(obj map[string]any, nulls bool) (unknown []string, changed bool, err *field.Error) {
	return p.run(obj, preparation{fill: true, nulls: nulls})
}

func (p *Program) run(obj map[string]any, as preparation) (unknown []string, changed bool, err *field.Error) {
	if obj == nil || !p.root.acts && !p.root.sheds {
		return nil, false, nil
	}
	s := preparations.Get().(*preparation)
	defer preparations.Put(s)
	as.path, as.scopes = s.path[:0], s.scopes[:0]
	*s = as
	if p.equates && as.fill {
		s.omit(p.root, obj)
	}
	s.structure(p.root, obj, true)
	unknown, changed, err = s.unknown, s.changed, s.failed
	s.unknown, s.omitted, s.left = nil, nil, nil
	return unknown, changed, err
}

// Node returns the form of the program.
func (p *Program) Node() *schemas.Node { return p.root.node }

// Sensitive reports whether objects of the kind hold secrets.
func (p *Program) Sensitive() bool { return p.sensitive }

// SensitivePaths returns the paths to the secrets in objects, see [schemas.Node.SensitivePaths]. All callers get the same paths: they
// may append others to the slice, and change nothing in it.
func (p *Program) SensitivePaths() [][]string { return p.secrets }

// A check is the compiled form of a node.
type check struct {
	node    *schemas.Node
	kinds   schemas.Kinds
	bools   [2]bool // whether false and true are admitted, if boolEnum
	enum    bool    // bools is set
	texts   []textCheck
	numbers []numberCheck
	format  func(string) bool
	list    *listCheck
	object  *objectCheck
	union   *unionCheck

	fallbackCheck *fallbackCheck // nil if the node has no fallback
	logic         *logicCheck

	fallback  any  // the default, or nil
	completes bool // the default is a list or a struct, and data that holds a part of it is completed
	fillsNull bool // a null counts as absent because there is a default
	narrows   bool // floats without a fraction become integers
	acts      bool // Prepare may change the value or a part of it
	sheds     bool // values of kinds that the node does not admit are pruned, see shed
	refers    bool // there are references in the value or its parts
}

// A textCheck is an alternative for strings.
type textCheck struct {
	rule     *schemas.Scalar
	enum     []string
	not      []string
	patterns []*regexp.Regexp // the patterns of rule, in order
	min, max int              // max < 0: no maximum
	forms    []func(string) bool
}

// A numberCheck is an alternative for numbers.
type numberCheck struct {
	rule     *schemas.Scalar
	integer  bool // only integers are admitted
	bounds   Interval
	ints     []int64 // the enum, split by Go type
	floats   []float64
	enum     bool
	notInt   []int64
	notFloat []float64
	multiple *Multiple // nil: any number
}

type listCheck struct {
	items  *check   // nil: any item
	prefix []*check // checks of the first items; rest checks those after them
	rest   *check   // nil: any item
	min    int
	max    int // max < 0: no maximum
	unique bool
	set    bool     // items must be unique
	keys   []string // fields whose values identify an item
}

type objectCheck struct {
	fields   []fieldCheck
	index    map[string]int
	patterns []patternCheck
	open     bool

	refers      bool // there are references in the fields or their parts
	comparisons []comparisonCheck
	conditions  []conditionCheck
	min, max    int // max < 0: no maximum
}

type fieldCheck struct {
	name     string
	check    *check
	presence schemas.Presence
	absent   any // the value of a missing field, if fills
	fills    bool
}

type patternCheck struct {
	key   *check
	value *check
}

// newCheck compiles a check. Its fallbacks are evaluated in this process.
func newCheck(n *schemas.Node, depth int) (*check, error) { return new(asking).newCheck(n, depth) }

func (b building) check(n *schemas.Node) (*check, error) {
	if n == nil {
		return nil, errors.New("schemas: a form with a missing node")
	}
	if b.depth > schemas.MaxDepth {
		return nil, fmt.Errorf("schemas: a form deeper than %d levels", schemas.MaxDepth)
	}
	if n.Kinds == 0 {
		return nil, errors.New("schemas: a node that admits nothing")
	}
	c := &check{node: n, kinds: n.Kinds, refers: n.From != nil}
	if n.From != nil && (len(n.From.Parts) == 0 || n.Kinds&^schemas.ScalarKinds != 0 && !n.From.Default) {
		return nil, errors.New("schemas: a reference to nothing, or in a value that is not a scalar")
	}
	for i := range n.Scalars {
		if err := c.addScalar(&n.Scalars[i]); err != nil {
			return nil, err
		}
	}
	c.format = textforms.FormatOf(n)
	c.fillsNull = n.Plain && n.DropNull || !n.Plain && !n.Kinds.Has(schemas.NullKind)
	if n.List != nil {
		if err := c.addList(n.List, b); err != nil {
			return nil, err
		}
	}
	if n.Struct != nil {
		if err := c.addStruct(n.Struct, b); err != nil {
			return nil, err
		}
	}
	if n.Union != nil {
		if err := c.addUnion(n.Union, b); err != nil {
			return nil, err
		}
	}
	if n.Fallback != nil {
		var err error
		if c.fallbackCheck, err = b.fallback(n.Fallback); err != nil {
			return nil, err
		}
		c.acts = true
	}
	if n.Logic != nil {
		var err error
		if c.logic, err = newLogic(n.Logic, b); err != nil {
			return nil, err
		}
	}
	c.narrows = c.kinds&(schemas.IntegerKind|schemas.NumberKind) == schemas.IntegerKind
	c.acts = c.acts || c.narrows || n.Bare || n.Embedded
	c.sheds = n.Plain && !n.Keeps && c.kinds != schemas.AnyKind
	if len(n.Default) > 0 {
		return c, c.addDefault(n.Default)
	}
	return c, nil
}

func (c *check) addDefault(text []byte) error {
	v, err := jsonvalue.Decode(text)
	if err != nil {
		return err
	}
	if c.node.Plain {
		// The completed default may be invalid. Then an object that lacks the field is invalid
		// too.
		fill := preparation{fill: true}
		c.fallback = fill.value(c, v)
		return nil
	}
	var run inspection
	if run.value(c, v); len(run.errs) > 0 {
		return fmt.Errorf("schemas: the default %s does not satisfy its own field: %s", text, detailOf(run.errs))
	}
	c.fallback = v
	switch v.(type) {
	case []any, map[string]any:
		c.completes = true
		c.acts = true
	}
	return nil
}

// detailOf returns what is wrong with a value that is a field of its own, in one line.
func detailOf(errs field.ErrorList) string {
	var details []string
	for _, e := range errs {
		text := e.Detail
		if text == "" || e.Field != "" && e.Field != "<nil>" {
			text = e.Error()
		}
		details = append(details, text)
	}
	return strings.Join(details, "; ")
}

func (c *check) addList(l *schemas.List, b building) error {
	c.list = &listCheck{max: -1, unique: l.Unique}
	if l.MinItems != nil {
		c.list.min = l.MinItems.Count
	}
	if l.MaxItems != nil {
		c.list.max = l.MaxItems.Count
	}
	switch l.Type {
	case "", schemas.ListAtomic:
	case schemas.ListSet:
		c.list.set = true
	case schemas.ListMap:
		if c.list.keys = l.MapKeys; len(l.MapKeys) == 0 {
			return errors.New("schemas: a list of type map without keys")
		}
	default:
		return fmt.Errorf("schemas: a list of type %q", l.Type)
	}
	if err := c.addPrefix(l, b); err != nil {
		return err
	}
	if l.Items == nil {
		return nil
	}
	items, err := b.deeper().check(l.Items)
	if err != nil {
		return err
	}
	if l.Unique && items.kinds&(schemas.ListKind|schemas.StructKind) != 0 {
		return errors.New("schemas: a unique list of items that are not scalars")
	}
	c.list.items = items
	c.refers = c.refers || items.refers
	c.acts = c.acts || items.acts || items.node.DropNull && items.fallback != nil
	return nil
}

// addPrefix compiles the nodes of the first items.
func (c *check) addPrefix(l *schemas.List, b building) error {
	if len(l.Prefix) > 0 && l.MinItems == nil {
		return errors.New("schemas: a list whose first items may be missing")
	}
	for i, n := range append(slices.Clip(l.Prefix), l.Rest) {
		if i == len(l.Prefix) && n == nil {
			break
		}
		item, err := b.deeper().check(n)
		if err != nil {
			return err
		}
		if l.Unique && item.kinds&(schemas.ListKind|schemas.StructKind) != 0 {
			return errors.New("schemas: a unique list of items that are not scalars")
		}
		if i == len(l.Prefix) {
			c.list.rest = item
		} else {
			c.list.prefix = append(c.list.prefix, item)
		}
		c.acts = c.acts || item.acts
		c.refers = c.refers || item.refers
	}
	return nil
}

// itemCheck returns the check of the item at index i, or nil if any item is valid.
func (l *listCheck) itemCheck(i int) *check {
	switch {
	case l.prefix == nil:
		return l.items
	case i < len(l.prefix):
		return l.prefix[i]
	}
	return l.rest
}

func (c *check) addStruct(s *schemas.Struct, b building) error {
	o := &objectCheck{open: s.Open, max: -1, index: make(map[string]int, len(s.Fields))}
	c.object = o
	if s.MinFields != nil {
		o.min = s.MinFields.Count
	}
	if s.MaxFields != nil {
		o.max = s.MaxFields.Count
	}
	for i, f := range s.Fields {
		fc, err := b.field(f)
		if err != nil {
			return err
		}
		if _, double := o.index[f.Name]; double {
			return fmt.Errorf("schemas: field %q occurs twice", f.Name)
		}
		o.index[f.Name] = i
		o.fields = append(o.fields, fc)
		c.acts = c.acts || fc.check.acts || fc.fills || fc.check.node.DropNull || fc.check.node.From != nil
		c.refers = c.refers || fc.check.refers
	}
	if err := o.addRelations(s, b); err != nil {
		return err
	}
	for i := range o.conditions {
		for _, fc := range o.conditions[i].fields {
			c.acts = c.acts || fc.check.acts || fc.fills
		}
	}
	for _, p := range s.Patterns {
		key, err := b.deeper().check(p.Key)
		if err != nil {
			return err
		}
		value, err := b.deeper().check(p.Value)
		if err != nil {
			return err
		}
		if len(s.Patterns) > 1 && value.kinds&(schemas.ListKind|schemas.StructKind) != 0 {
			return errors.New("schemas: several patterns whose values are not scalars")
		}
		c.refers = c.refers || value.refers
		o.patterns = append(o.patterns, patternCheck{key: key, value: value})
		c.acts = c.acts || value.acts || value.node.DropNull
	}
	if !o.open && len(o.patterns) == 0 {
		c.acts = true // Prepare prunes
	}
	o.refers = c.refers
	return nil
}

func (b building) field(f schemas.Field) (fieldCheck, error) {
	child, err := b.deeper().check(f.Schema)
	if err != nil {
		return fieldCheck{}, fmt.Errorf("%w (field %q)", err, f.Name)
	}
	fc := fieldCheck{name: f.Name, check: child, presence: f.Presence}
	if f.Presence == schemas.Regular {
		fc.absent, fc.fills = child.absent()
	}
	return fc, nil
}

// absent returns the value that a regular field gets when it is missing. ok is false if it gets none.
func (c *check) absent() (any, bool) {
	if c.fallbackCheck == nil && (c.fallback != nil || len(c.node.Default) > 0) {
		return c.fallback, true
	}
	switch {
	case c.fallbackCheck != nil:
		return c.fallbackCheck.absent, c.fallbackCheck.fills
	case c.union != nil && c.union.ambiguous != nil:
		return c.union.ambiguous.fallbackCheck.absent, c.union.ambiguous.fallbackCheck.fills
	case c.kinds != schemas.StructKind || c.object == nil || c.union != nil || c.node.Embedded:
		return nil, false
	}
	value := make(map[string]any)
	for _, f := range c.object.fields {
		switch {
		case f.fills:
			value[f.name] = f.absent
		case f.taken(): // filled in when the enclosing struct is complete
		case f.presence != schemas.Optional:
			return nil, false
		}
	}
	if len(c.object.conditions)+len(c.object.comparisons) == 0 {
		return value, true
	}
	// The default must have the fields that other fields refer to.
	p := preparation{fill: true}
	p.object(c.object, value, false)
	var run inspection
	run.object(c, value, false)
	return value, len(run.errs) == 0
}

// taken reports whether the field, when missing, gets the value of another field.
func (f *fieldCheck) taken() bool { return f.presence == schemas.Regular && f.check.node.From != nil }

func (c *check) addScalar(s *schemas.Scalar) error {
	if s.Kinds == 0 || s.Kinds&^schemas.ScalarKinds != 0 {
		return fmt.Errorf("schemas: a scalar of kind %q", s.Kinds)
	}
	enum, err := jsonvalue.DecodeAll(s.Enum)
	if err != nil {
		return err
	}
	var not []any
	for _, x := range s.Not {
		v, err := jsonvalue.Decode(x.Value)
		if err != nil {
			return err
		}
		not = append(not, v)
	}
	if s.Kinds.Has(schemas.BoolKind) {
		c.addBool(enum, not)
	}
	if s.Kinds.Has(schemas.StringKind) {
		if err := c.addText(s, enum, not); err != nil {
			return err
		}
	}
	if s.Kinds&(schemas.IntegerKind|schemas.NumberKind) != 0 {
		return c.addNumber(s, enum, not)
	}
	return nil
}

func (c *check) addBool(enum, not []any) {
	c.enum = true
	for i, b := range [...]bool{false, true} {
		if (len(enum) == 0 || slices.Contains(enum, any(b))) && !slices.Contains(not, any(b)) {
			c.bools[i] = true
		}
	}
}

func (c *check) addText(s *schemas.Scalar, enum, not []any) error {
	t := textCheck{rule: s, max: -1, enum: ofType[string](enum), not: ofType[string](not)}
	if len(s.Enum) > 0 && t.enum == nil {
		t.enum = []string{} // admits no string
	}
	for _, p := range s.Patterns {
		re, err := regexp.Compile(p.Regexp)
		if err != nil {
			return fmt.Errorf("schemas: %w", err)
		}
		t.patterns = append(t.patterns, re)
	}
	for _, f := range s.Forms {
		rule, ok := textforms.Named(f.Name)
		if !ok {
			return fmt.Errorf("schemas: unknown form %q", f.Name)
		}
		t.forms = append(t.forms, rule.Admits)
	}
	if s.MinRunes != nil {
		t.min = s.MinRunes.Count
	}
	if s.MaxRunes != nil {
		t.max = s.MaxRunes.Count
	}
	c.texts = append(c.texts, t)
	return nil
}

func (c *check) addNumber(s *schemas.Scalar, enum, not []any) error {
	bounds, err := NewInterval(s.Minimum, s.Maximum)
	if err != nil {
		return err
	}
	var of *Multiple
	if s.MultipleOf != nil {
		if of, err = NewMultiple(s.MultipleOf); err != nil {
			return err
		}
	}
	c.numbers = append(c.numbers, numberCheck{
		rule:     s,
		multiple: of,
		integer:  !s.Kinds.Has(schemas.NumberKind),
		bounds:   bounds,
		enum:     len(s.Enum) > 0,
		ints:     ofType[int64](enum),
		floats:   ofType[float64](enum),
		notInt:   ofType[int64](not),
		notFloat: ofType[float64](not),
	})
	return nil
}

// ofType returns the values of type T, or nil if there are none.
func ofType[T any](values []any) []T {
	var result []T
	for _, v := range values {
		if t, ok := v.(T); ok {
			result = append(result, t)
		}
	}
	return result
}

// Adapts reports whether Prepare may change objects of the kind.
func (p *Program) Adapts() bool { return p.root.acts }
