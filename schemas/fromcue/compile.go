package fromcue

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/cuevalue"
	"stele.dev/stele/schemas/fromcue/verify"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

// Limits of the compiler. They bound its work on a hostile schema.
const (
	maxNodes   = 20_000  // of a form
	maxSteps   = 200_000 // of the survey
	maxNesting = 2       // of a value within one that came by the same reference
)

// Schema compiles the schema of an object: a struct that constrains everything
// but apiVersion, kind and metadata. locate says where a position lies in the
// bundle; for positions that are not in the bundle, such as those in stele's own
// definitions, it returns false, and the next contribution to the value is taken.
//
// packages are those that v is made of; names that other files or packages declare are looked
// up in them.
//
// The result is either a node or diagnostics: all that is wrong, not the first
// of it.
func Schema(v cue.Value, locate func(token.Pos) (schemas.Position, bool), packages ...*build.Instance) (*schemas.Node, schemas.Diagnostics) {
	c := NewCompiler(locate, packages...)
	n := c.Schema(v)
	if diags := c.Diagnostics(); diags != nil {
		return nil, diags
	}
	return n, nil
}

// A Compiler turns evaluated CUE into nodes, and collects what is wrong with it.
type Compiler struct {
	locate   func(token.Pos) (schemas.Position, bool)
	packages cuesyntax.Packages
	diags    schemas.Diagnostics

	rootIsFile bool // the fields of a file are data
	nodes      int
	steps      int
	following  map[ast.Node]bool // references being surveyed
	claims     map[*schemas.Struct]claim
	unions     map[*schemas.Node]claim
	related    map[*schemas.Struct]claim // structs whose fields depend on each other
	settled    map[*schemas.Struct]bool  // whether they are open, where only a variant tells
	named      map[string]cue.Value      // what identifiers refer to
	preserved  []preserved
	untaken    map[string]bool   // fields that are not to be taken from elsewhere, by their path
	forced     map[string]reason // what has to be left to CUE, by its path
	taken      []*taken          // fields whose value is taken from elsewhere
	scratch    *cue.Context      // for values that the compiler makes up
}

// NewCompiler returns a compiler of schemas that are made of packages. [FromCUE] says what its
// arguments are.
func NewCompiler(locate func(token.Pos) (schemas.Position, bool), packages ...*build.Instance) *Compiler {
	return &Compiler{
		packages: cuesyntax.NewPackages(packages),
		locate: func(p token.Pos) (schemas.Position, bool) {
			if !p.IsValid() {
				return schemas.Position{}, false
			}
			return locate(p)
		},
		following: make(map[ast.Node]bool),
		claims:    make(map[*schemas.Struct]claim),
		unions:    make(map[*schemas.Node]claim),
		related:   make(map[*schemas.Struct]claim),
		settled:   make(map[*schemas.Struct]bool),
		named:     make(map[string]cue.Value),
		forced:    make(map[string]reason),
		untaken:   make(map[string]bool),
		scratch:   cuecontext.New(),
	}
}

// Diagnostics returns all that is wrong with what was compiled, sorted; nil if nothing is.
func (c *Compiler) Diagnostics() schemas.Diagnostics { return c.diags.Sorted() }

// Refuse records that something at a path is wrong.
func (c *Compiler) Refuse(path string, source schemas.Position, message, hint string) {
	c.refuse(&place{path: path, source: source}, nil, message, hint)
}

// Report records CUE's own errors about the value at a path.
func (c *Compiler) Report(err error, path string, source schemas.Position) {
	c.reported(err, &place{path: path, source: source})
}

// PositionOf returns the position of the first contribution to v that locate
// knows, the zero Position if it knows none.
func PositionOf(v cue.Value, locate func(token.Pos) (schemas.Position, bool)) schemas.Position {
	pos, _ := NewCompiler(locate).SourceOf(v)
	return pos
}

// SourceOf returns the position of the first contribution to v that is in the
// bundle.
func (c *Compiler) SourceOf(v cue.Value) (schemas.Position, bool) {
	if f, ok := v.Source().(*ast.Field); ok {
		if pos, ok := c.locate(f.Pos()); ok {
			return pos, true
		}
	}
	if op, args := v.Expr(); op == cue.AndOp {
		for _, a := range args {
			if pos, ok := c.SourceOf(a); ok {
				return pos, true
			}
		}
	}
	if node := v.Source(); node != nil {
		if pos, ok := c.locate(node.Pos()); ok {
			return pos, true
		}
	}
	return c.locate(v.Pos())
}

// A place is where the compiler is: a path from the top of the schema.
type place struct {
	path      string // spec.ports[].name
	depth     int
	parent    *place
	source    schemas.Position // of the nearest field that can be located
	presence  schemas.Presence
	refs      []ast.Node // references that contribute here
	literals  []ast.Node // literals of structs, and files, that contribute here
	recursive bool       // found to recur; nothing below it is looked at

	// passing: not a place of the form, but one on the way to an alternative, or to a
	// declaration that is no data.
	passing bool
	vague   bool     // the form cannot say what the value is
	reasons []reason // why CUE has to evaluate what is here

	name        string             // of the field, if it is one
	within      int                // how many disjunctions the survey is in
	listing     int                // how many lists of alternatives it is in that do not depend on data
	mixed       int                // how many of them have several alternatives besides null
	attributes  []cue.Attribute    // of the definitions that are referred to
	entry       bool               // of a map, under a key of a pattern
	arms        bool               // its alternatives are being compiled
	variant     bool               // it is seen in a variant of the struct
	operand     int                // how many expressions the survey is in whose operands are no values of the place
	joint       int                // how many conjunctions it is in
	from        *schemas.Reference // where the value is taken from
	taken       *taken
	loose       bool // nothing is said of the value but by from
	comparisons []schemas.Comparison
	dropped     []ast.Expr             // what comparisons, and matched, stand for
	matched     *cue.Value             // the choice that a call of matchN is
	message     string                 // of error(…), the last alternative
	pending     []*cuesyntax.Condition // conditions
	unsure      []string               // fields about which comprehensions say something; "*" for all
}

// below returns the place of a part.
func (p *place) below(suffix string, presence schemas.Presence) *place {
	return &place{
		path: p.path + suffix, depth: p.depth + 1, parent: p,
		source: p.source, presence: presence,
	}
}

// field returns the place of a field.
func (p *place) field(name string, presence schemas.Presence) *place {
	suffix := name
	if p.path != "" {
		suffix = "." + name
	}
	f := p.below(suffix, presence)
	f.name = name
	return f
}

// refuse records that the schema cannot be compiled.
func (c *Compiler) refuse(at *place, node ast.Node, message, hint string) {
	c.diags = append(c.diags, schemas.Diagnostic{Pos: c.position(node, at), Path: at.path, Message: message, Hint: hint})
}

func (c *Compiler) refuseDepth(at *place) {
	c.refuse(at, nil, fmt.Sprintf("nested deeper than %d levels", schemas.MaxDepth), "leave the inner value open with {...}")
}

// position locates node, or else the field that it belongs to.
func (c *Compiler) position(node ast.Node, at *place) schemas.Position {
	if node != nil {
		if pos, ok := c.locate(node.Pos()); ok {
			return pos
		}
	}
	return at.source
}

// reported adds CUE's own errors. It adds something in any case: CUE can take a
// value for impossible without saying why.
func (c *Compiler) reported(err error, at *place) {
	if err == nil {
		c.refuse(at, nil, "conflicting values", "see that some value satisfies every rule of the field")
	}
	for _, e := range errors.Errors(err) {
		pos := at.source
		for _, p := range append([]token.Pos{e.Position()}, e.InputPositions()...) {
			if l, ok := c.locate(p); ok {
				pos = l
				break
			}
		}
		d := schemas.Diagnostic{Pos: pos, Path: at.path}
		switch format, args := e.Msg(); format {
		case interpreter.FieldNotAllowed:
			d.Message, d.Hint = neverSet, neverSetHint
		case "structural cycle":
			d.Message, d.Hint = recursion, recursionHint
		default:
			d.Message = fmt.Sprintf(format, args...)
		}
		c.diags = append(c.diags, d)
	}
}

// What CUE says more tersely.
const (
	neverSet      = "a field that can never be set, for another part of the struct is closed to it"
	neverSetHint  = "embed the closed part ({#name, ...}) instead of joining it with &"
	recursion     = "a recursive definition"
	recursionHint = "unfold it to the depth that is needed, or leave the inner value open with {...}"
)

// Schema compiles the value at the top of a schema. It returns nil if anything was refused,
// now or before.
func (c *Compiler) Schema(v cue.Value) *schemas.Node {
	at := &place{presence: schemas.Required}
	if !v.Exists() {
		c.refuse(at, nil, "there is no schema", "")
		return nil
	}
	at.source, _ = c.locate(v.Pos())
	if err := v.Validate(); err != nil {
		c.reported(err, at)
		return nil
	}
	c.rootIsFile = cuevalue.IsFile(v)
	n := c.probed(v, at)
	if len(c.diags) > 0 {
		return nil
	}
	if n.Kinds != schemas.StructKind || n.Default != nil {
		c.refuse(at, nil, "a schema must be a struct, without alternatives", "")
		return nil
	}
	for _, f := range n.Struct.Fields {
		if schemas.ServerOwned(f.Name) {
			c.diags = append(c.diags, schemas.Diagnostic{
				Pos: f.Schema.Source, Path: f.Name,
				Message: "apiVersion, kind and metadata belong to the server", Hint: "remove the field",
			})
		}
	}
	if c.checkPreserved(); len(c.diags) == 0 {
		c.checkDefaults(n, "")
	}
	if len(c.diags) == 0 {
		c.holdMarks(n, v, at)
	}
	return n
}

// probed compiles v and compares the result with what CUE does. Where they differ in a way
// that CUE itself can settle, that part is left to it.
func (c *Compiler) probed(v cue.Value, top *place) *schemas.Node {
	for range maxRounds {
		at := *top
		before, untaken, said := len(c.forced), len(c.untaken), len(c.diags)
		c.nodes, c.steps = 0, 0
		clear(c.claims)
		clear(c.unions)
		clear(c.related)
		clear(c.settled)
		c.preserved, c.taken = nil, nil
		n := c.node(v, &at)
		if len(c.untaken) > untaken {
			c.diags = c.diags[:said]
			continue
		}
		if len(c.diags) == 0 && n.Kinds == schemas.StructKind {
			c.probe(v, n, &at)
		}
		if len(c.diags) == 0 && len(c.forced) == before && n.Kinds == schemas.StructKind && n.Default == nil {
			c.agree(v, n, &at)
		}
		if len(c.diags) > 0 || len(c.forced) == before {
			c.uniform(n, &at)
			return n
		}
	}
	c.refuse(top, nil, "a schema of which too many parts only CUE can check", "write it in a simpler way")
	return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{}}
}

// maxRounds bounds how often a schema is compiled again, each time with more of it left to
// CUE.
const maxRounds = 12

// checkDefaults refuses defaults that are not values of their own field.
func (c *Compiler) checkDefaults(n *schemas.Node, path string) {
	if n == nil {
		return
	}
	if n.Default != nil || path == "" {
		if _, err := program.NewChecker(n); err != nil {
			c.refuse(&place{path: path, source: n.Source}, nil, strings.TrimPrefix(err.Error(), "schemas: "), "")
			return
		}
	}
	if n.List != nil {
		c.checkDefaults(n.List.Items, path+"[]")
		for _, item := range n.List.Prefix {
			c.checkDefaults(item, path+"[]")
		}
		c.checkDefaults(n.List.Rest, path+"[]")
	}
	if n.Struct != nil {
		for _, f := range n.Struct.Fields {
			c.checkDefaults(f.Schema, strings.TrimPrefix(path+"."+f.Name, "."))
		}
		for _, p := range n.Struct.Patterns {
			c.checkDefaults(p.Value, path+"[]")
		}
	}
}

// node compiles one value. It always returns a node, so that the rest can be
// compiled; what it could not compile is among the diagnostics.
func (c *Compiler) node(v cue.Value, at *place) *schemas.Node {
	n := &schemas.Node{Kinds: schemas.AnyKind, Source: at.source}
	if r, ok := c.forced[at.path]; ok {
		at.reasons = append(at.reasons, r)
	}
	if c.nodes++; c.nodes > maxNodes {
		c.refuse(at, nil, fmt.Sprintf("a schema of more than %d fields", maxNodes), "split the kind")
		return n
	}
	if at.depth > schemas.MaxDepth {
		c.refuseDepth(at)
		return n
	}
	before := len(c.diags)
	s := c.survey(v, at)
	if !s.source.IsZero() {
		at.source = s.source
		n.Source = s.source
	}
	n.Doc = cuevalue.DocOf(v)
	if at.unclear() {
		c.diags = c.diags[:before] // what v is without data is nothing to judge it by
		c.attributes(n, v, at)
		return n
	}
	refused := len(c.diags) > before
	whole := v
	if len(at.dropped) > 0 && !at.vague {
		rest, ok := c.remaining(v, at)
		if !ok {
			c.leaveTo(at.parent, at, at.dropped[0], "a bound that is another field")
		}
		v = rest
	}
	if at.loose && !at.vague {
		v = c.scratch.BuildExpr(ast.NewIdent("string"))
	}
	switch {
	case at.vague, at.recursive && s.split: // CUE has dropped the alternatives that need themselves
		c.vague(n, v, s, at)
	case len(at.pending) > 0 && s.kinds == cue.StructKind && !cuevalue.IsError(v):
		// Without data CUE may not know yet whether it is one.
		n.Kinds, n.Struct = schemas.StructKind, c.structOf(v, s, at)
	case v.IncompleteKind() == cue.BottomKind:
		c.bottom(n, v, s, at, refused)
	default:
		c.union(n, v, s, at, refused)
	}
	n.Message = at.message
	c.settle(n, at)
	c.attributes(n, whole, at)
	if len(at.reasons) > 0 && len(c.diags) == before {
		c.fallback(n, v, at)
	}
	return n
}

// bottom compiles a value that CUE cannot evaluate without data. That is fine
// for a list that must not be empty, which CUE tries to satisfy with the empty
// list of the schema.
func (c *Compiler) bottom(n *schemas.Node, v cue.Value, s shape, at *place, refused bool) {
	if v.IsConcrete() || s.kinds != cue.ListKind || !s.hasMinItems() {
		if cuevalue.IsCycle(v.Err()) && at.parent != nil && !refused {
			n.Kinds = schemas.AnyKind
			c.leaveTo(at.parent, at, nil, recursion)
			return
		}
		if !refused {
			c.reported(v.Err(), at)
		}
		return
	}
	if s.minItems.Count > maxMinItems {
		c.refuse(at, nil, fmt.Sprintf("a list of at least %d items", s.minItems.Count), fmt.Sprintf("list.MinItems goes up to %d", maxMinItems))
		return
	}
	filled := v.Unify(c.scratch.BuildExpr(tops(s.minItems.Count)))
	item := filled.LookupPath(cue.MakePath(cue.Index(0)))
	if !item.Exists() || cuevalue.IsError(filled) {
		if !refused {
			c.reported(filled.Err(), at)
		}
		return
	}
	if s.fixed {
		n.Kinds = schemas.ListKind
		c.leaveTo(at, at, nil, "a list with fixed items that must have more")
		return
	}
	n.Kinds = schemas.ListKind
	n.List = c.limits(s)
	n.List.Items = c.items(v, item, s, at)
}

// maxMinItems bounds the lists that the compiler makes up to satisfy a schema.
const maxMinItems = 1024

// tops returns [_, _, ...], a list of n items.
func tops(n int) ast.Expr {
	items := make([]ast.Expr, n)
	for i := range items {
		items[i] = top()
	}
	return ast.NewList(items...)
}

func (c *Compiler) limits(s shape) *schemas.List {
	return &schemas.List{MinItems: s.minItems, MaxItems: s.maxItems, Unique: s.unique}
}

func (s shape) limited() bool { return s.minItems != nil || s.maxItems != nil || s.unique }

// evaluated reports whether there are parts of n that CUE evaluates, or alternatives.
func evaluated(n *schemas.Node) (found bool) {
	n.Visit("", func(_ string, n *schemas.Node) {
		found = found || n.Fallback != nil || n.Union != nil || n.From != nil || n.Struct != nil && len(n.Struct.Conditions) > 0
	})
	return found
}

// forgets reports whether CUE judges an item otherwise in its list than by itself: beside a
// limit it can forget that items are closed.
func (c *Compiler) forgets(list, item cue.Value, n *schemas.Node, s shape) bool {
	g := samples.Maker{Rand: rand.New(rand.NewPCG(9, 10)), Unknown: 50, Keys: verify.Names(n), Full: 80}
	count := 1
	if s.minItems != nil {
		count = max(count, s.minItems.Count)
	}
	if s.maxItems != nil && s.maxItems.Count < count {
		return false
	}
	for range 60 {
		one := g.Near(n)
		items := make([]any, count)
		for i := range items {
			items[i] = one
		}
		text, err1 := json.Marshal(one)
		all, err2 := json.Marshal(items)
		if err1 == nil && err2 == nil && !(s.unique && count > 1) && interpreter.Ask(item, text).Valid() != interpreter.Ask(list, all).Valid() {
			return true
		}
	}
	return false
}

// items compiles the value of the items of a list.
func (c *Compiler) items(list, v cue.Value, s shape, at *place) *schemas.Node {
	n := c.node(v, at.below("[]", schemas.Required))
	if s.unique && n.Kinds&(schemas.ListKind|schemas.StructKind) != 0 {
		c.leaveTo(at, at, nil, "a list without duplicates whose items may be lists or structs")
	}
	if s.limited() && evaluated(n) && !(s.unique && n.Kinds&(schemas.ListKind|schemas.StructKind) != 0) && len(c.diags) == 0 {
		if c.forgets(list, v, n, s) {
			c.refuse(at, nil, "a list with a limit in which CUE forgets what its items are closed to",
				"give the items a definition of their own (#name) and refer to it, or drop the limit")
		}
	}
	if n.Kinds == schemas.AnyKind && len(n.Scalars) == 0 && n.List == nil && n.Struct == nil && n.Fallback == nil &&
		!n.Sensitive && n.Immutable == nil && n.Format == "" && !n.Embedded {
		return nil
	}
	return n
}

// list compiles a list value, or an alternative that is one.
func (c *Compiler) list(v cue.Value, s shape, at *place, refused bool) *schemas.List {
	l := c.limits(s)
	switch {
	case refused:
		return l
	case cuevalue.FixedItems(v):
		return c.tuple(v, s, at)
	}
	item := v.LookupPath(cue.MakePath(cue.AnyIndex))
	if !item.Exists() { // []
		l.MaxItems = &schemas.Limit{Source: at.source}
		return l
	}
	l.Items = c.items(v, item, s, at)
	return l
}

// structOf compiles a struct value, or an alternative that is one.
func (c *Compiler) structOf(v cue.Value, s shape, at *place) *schemas.Struct {
	result := &schemas.Struct{}
	fields, err := v.Fields(cue.All(), cue.Patterns(true))
	if err != nil {
		c.reported(err, at)
		return result
	}
	type pattern struct{ key, value cue.Value }
	var patterns []pattern
	var comparisons []schemas.Comparison
	for fields.Next() {
		sel := fields.Selector()
		switch {
		case fields.FieldType()&cue.PatternConstraint != 0:
			patterns = append(patterns, pattern{sel.Pattern(), fields.Value()})
		case sel.LabelType() != cue.StringLabel:
			// Definitions and hidden fields hold no data, but constrain it if
			// they refer to it, and do more than that.
			if !isAliasOfData(fields.Value()) {
				c.item(fields.Value(), at)
			}
			if err := fields.Value().Validate(); err != nil {
				c.reported(err, at.field(sel.String(), schemas.Regular))
			}
		default:
			presence := schemas.Regular
			switch sel.ConstraintType() {
			case cue.RequiredConstraint:
				presence = schemas.Required
			case cue.OptionalConstraint:
				presence = schemas.Optional
			}
			if presence == schemas.Optional && c.excluded(fields.Value()) {
				continue
			}
			name := sel.Unquoted()
			where := at.field(name, presence)
			child := c.node(fields.Value(), where)
			comparisons = append(comparisons, where.comparisons...)
			result.Fields = append(result.Fields, schemas.Field{Name: name, Presence: presence, Schema: child})
		}
	}
	for _, p := range patterns {
		c.pattern(result, v, p.key, p.value, len(patterns) == 1, at)
	}
	c.claims[result] = claim{value: v, parts: s.literals, at: at, order: len(c.claims)}
	if why := c.relate(result, comparisons, v, at); why != "" {
		c.leaveTo(at, at, nil, why)
	} else if why := c.conditions(result, v, at); why != "" {
		for _, p := range at.pending {
			at.cloud(p.Node)
		}
		c.leaveTo(at, at, at.pending[0].Node, why)
	}
	c.anchored(result, v, at)
	at.clouded(result)
	return result
}

// excluded reports whether v is a field that is declared only outside the bundle,
// by a definition of the server's own, and to which the struct is closed by a
// definition of the bundle. Such a field is as if it were not there.
func (c *Compiler) excluded(v cue.Value) bool {
	if _, ok := c.SourceOf(v); ok {
		return false
	}
	return slices.ContainsFunc(errors.Errors(v.Err()), func(e errors.Error) bool {
		format, _ := e.Msg()
		return format == interpreter.FieldNotAllowed
	})
}

// pattern compiles [key]: value in the struct within. If it is the only pattern,
// the value is looked at where it applies, in a field that it admits: only there
// is it known whether the value is closed.
func (c *Compiler) pattern(s *schemas.Struct, within, key, value cue.Value, only bool, at *place) {
	k := c.node(key, at.below("[key]", schemas.Required))
	if k.Kinds == schemas.AnyKind && k.Fallback == nil {
		k = &schemas.Node{Kinds: schemas.StringKind, Source: k.Source} // [_]: T
	}
	if k.Kinds != schemas.StringKind {
		c.refuse(at, key.Source(), "a pattern that is not a string", "write [string]: T or [=~\"regexp\"]: T")
		return
	}
	if only {
		if name, ok := samples.Key(k, s); ok {
			if w := within.LookupPath(cue.MakePath(cue.Str(name).Optional())); w.Exists() {
				value = w
			}
		}
	}
	entry := at.below("[]", schemas.Required)
	entry.entry = true
	v := c.node(value, entry)
	if !only && v.Kinds&(schemas.ListKind|schemas.StructKind) != 0 {
		c.leaveTo(at, at, value.Source(), "several patterns whose values are lists or structs")
		return
	}
	s.Patterns = append(s.Patterns, schemas.KeyPattern{Key: k, Value: v})
}
