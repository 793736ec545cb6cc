// Package fromcue compiles CUE into the form of a schema.
//
// The compiler reads evaluated CUE: the kind of each value, the merged fields of each struct, the default.
// It reads syntax only to prove that the meaning does not depend on data (survey.go). To find out whether
// a struct is closed, it unifies the schema with examples that have unknown fields (probe.go).
//
// # Parts that depend on each other
//
//   - Alternatives that are structs become a Union (union.go).
//   - A bound that is another field (max: >min) becomes a Comparison, and fields under an `if` become a
//     Condition. The fields that an `if` adds are read from variants of the struct in which the tested
//     fields have values (condition.go).
//   - A field whose value is another field, a map key, or a string built from them gets a Reference
//     (taken.go).
//   - A list whose items differ by index has a node for each item (tuple.go). A call of matchN that is
//     a choice between types becomes that choice (matchn.go).
//
// Everything else that depends on data becomes a Fallback: a self-contained CUE expression for the
// smallest part of the object that contains all data it refers to (fallback.go). The rest of that node
// is weakened to what holds for all data. An exported CUE value sometimes has another meaning. So the
// expression is compared with the original, and the whole form with CUE, on nearly valid values
// (agree.go, package verify). If they differ, a larger part is left to CUE.
//
// CUE drops the attributes of some values. For a fallback, they are read from the syntax (package
// cuesyntax): secrets and immutable fields are added to the form. Other attributes, which nothing would
// enforce, are rejected (carry.go).
//
// CUE can be neither interrupted nor limited, and it overflows the stack on some data. So servers
// evaluate fallbacks in other processes (package workers).
package fromcue

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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
	maxNodes   = 20_000  // nodes of a form
	maxSteps   = 200_000 // steps of the survey
	maxNesting = 2       // depth of a value within itself, by the same reference
)

// Schema compiles the schema of an object: a struct that constrains everything but apiVersion, kind and
// metadata. locate returns the place of a position in the bundle. It returns false for a position
// outside the bundle, such as one in stele's own definitions; then the next position of the value is
// tried.
//
// packages are the packages of v. Names that other files or packages declare are looked up there.
//
// Schema returns either a node or all diagnostics.
func Schema(v cue.Value, locate func(token.Pos) (schemas.Position, bool), packages ...*build.Instance) (*schemas.Node, schemas.Diagnostics) {
	c := NewCompiler(locate, packages...)
	n := c.Schema(v)
	if diags := c.Diagnostics(); diags != nil {
		return nil, diags
	}
	return n, nil
}

// A Compiler turns evaluated CUE into nodes and collects the errors.
type Compiler struct {
	locate   func(token.Pos) (schemas.Position, bool)
	packages cuesyntax.Packages
	diags    schemas.Diagnostics

	at         *place // being compiled
	rootIsFile bool   // the top-level fields of a file are data
	nodes      int
	steps      int
	following  map[ast.Node]bool // references being surveyed
	claims     map[*schemas.Struct]claim
	unions     map[*schemas.Node]claim
	narrowed   []*place                  // unions of which other parts contradict some alternatives
	related    map[*schemas.Struct]claim // structs with conditions or comparisons
	settled    map[*schemas.Struct]bool  // whether a struct is open, where only a variant shows it
	named      map[string]cue.Value      // values of identifiers
	preserved  []preserved
	untaken    map[string]bool   // paths of fields that must not become references
	forced     map[string]reason // paths of parts that CUE must evaluate
	taken      []*taken          // fields that became references
	scratch    *cue.Context      // for values that the compiler builds
}

// NewCompiler returns a compiler for schemas from packages. [Schema] describes the arguments.
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

// Diagnostics returns all errors found so far, sorted, or nil if there are none.
func (c *Compiler) Diagnostics() schemas.Diagnostics { return c.diags.Sorted() }

// Refuse records an error at a path.
func (c *Compiler) Refuse(path string, source schemas.Position, message, hint string) {
	c.refuse(&place{path: path, source: source}, nil, message, hint)
}

// Report records CUE's errors about the value at a path.
func (c *Compiler) Report(err error, path string, source schemas.Position) {
	c.reported(err, &place{path: path, source: source})
}

// PositionOf returns the first position of v that locate knows, or the zero Position.
func PositionOf(v cue.Value, locate func(token.Pos) (schemas.Position, bool)) schemas.Position {
	pos, _ := NewCompiler(locate).SourceOf(v)
	return pos
}

// SourceOf returns the first position of v that is in the bundle. ok is false if there is none.
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

// A place is a position of the compiler in the schema: a path from the root.
type place struct {
	path      string // spec.ports[].name
	depth     int
	parent    *place
	source    schemas.Position // of the nearest field with a known position
	presence  schemas.Presence
	refs      []ast.Node // references that contribute to the value
	literals  []ast.Node // struct literals and files that contribute to the value
	recursive bool       // the value contains itself; its parts are not compiled

	// passing marks a place that is not in the form: on the way to an alternative, or a declaration
	// that holds no data.
	passing bool
	vague   bool     // the form cannot describe the value
	reasons []reason // why CUE must evaluate this place

	name        string             // field name, if the place is a field
	within      int                // number of enclosing disjunctions
	listing     int                // number of enclosing lists of alternatives that do not depend on data
	mixed       int                // number of those lists with several alternatives besides null
	attributes  []cue.Attribute    // of the definitions that are referred to
	entry       bool               // the value of a pattern in a map
	arms        bool               // the arms of its union are being compiled
	variant     bool               // seen in a variant of the struct
	operand     int                // number of enclosing expressions whose operands are not values of this place
	joint       int                // number of enclosing conjunctions
	from        *schemas.Reference // the source of the value
	taken       *taken
	loose       bool // only from constrains the value
	comparisons []schemas.Comparison
	dropped     []ast.Expr             // expressions that comparisons and matched replace
	matched     *cue.Value             // the choice that a call of matchN stands for
	beside      *cue.Value             // the alternative beside a default that is a reference
	message     string                 // of error(…), the last alternative
	pending     []*cuesyntax.Condition // conditions to compile
	unsure      []string               // fields that comprehensions may add; "*" for all
}

// partPlace returns the place of a part.
func (p *place) partPlace(suffix string, presence schemas.Presence) *place {
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
	f := p.partPlace(suffix, presence)
	f.name = name
	return f
}

// refuse records an error about the syntax node.
func (c *Compiler) refuse(at *place, node ast.Node, message, hint string) {
	c.diags = append(c.diags, schemas.Diagnostic{Pos: c.position(node, at), Path: at.path, Message: message, Hint: hint})
}

func (c *Compiler) refuseDepth(at *place) {
	c.refuse(at, nil, fmt.Sprintf("nested deeper than %d levels", schemas.MaxDepth), "leave the inner value open with {...}")
}

// position returns the position of node, or of its field if node has none.
func (c *Compiler) position(node ast.Node, at *place) schemas.Position {
	if node != nil {
		if pos, ok := c.locate(node.Pos()); ok {
			return pos
		}
	}
	return at.source
}

// reported records CUE's errors. It always records at least one, because CUE may reject a value without
// an error.
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

// Our wording of CUE's terse errors.
const (
	neverSet      = "a field that can never be set, for another part of the struct is closed to it"
	neverSetHint  = "embed the closed part ({#name, ...}) instead of joining it with &"
	recursion     = "a recursive definition"
	recursionHint = "unfold it to the depth that is needed, or leave the inner value open with {...}"
)

// Schema compiles the value at the root of a schema. It returns nil if the compiler has recorded any
// error. A panic of CUE is an error at the field that was being compiled.
func (c *Compiler) Schema(v cue.Value) (n *schemas.Node) {
	at := &place{presence: schemas.Required}
	c.at = at
	defer func() {
		if p := recover(); p != nil {
			c.refuse(c.at, nil, fmt.Sprintf("CUE cannot evaluate this: it panics (%v)", p), "write it in a simpler way")
			n = nil
		}
	}()
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
	n = c.probed(v, at)
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

// probed compiles v and compares the result with CUE. If they differ, it compiles again and leaves the
// differing part to CUE, where that helps.
func (c *Compiler) probed(v cue.Value, top *place) *schemas.Node {
	for range maxRounds {
		at := *top
		before, untaken, said := len(c.forced), len(c.untaken), len(c.diags)
		c.nodes, c.steps = 0, 0
		clear(c.claims)
		clear(c.unions)
		clear(c.related)
		clear(c.settled)
		c.preserved, c.taken, c.narrowed = nil, nil, nil
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

// maxRounds is the maximum number of times that a schema is compiled. Each round leaves more of it to
// CUE.
const maxRounds = 12

// checkDefaults rejects defaults that violate their own field.
func (c *Compiler) checkDefaults(n *schemas.Node, path string) {
	if n == nil {
		return
	}
	if path == "" { // the whole is checked when its parts have been, whose errors have a place of their own
		before := len(c.diags)
		defer func() {
			if _, err := program.NewChecker(n); err != nil && len(c.diags) == before {
				c.refuse(&place{path: path, source: n.Source}, nil, strings.TrimPrefix(err.Error(), "schemas: "), "")
			}
		}()
	}
	if n.Default != nil && path != "" {
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

// node compiles one value. It always returns a node, so that the rest can be compiled; errors are among
// the diagnostics.
func (c *Compiler) node(v cue.Value, at *place) *schemas.Node {
	n := &schemas.Node{Kinds: schemas.AnyKind, Source: at.source}
	c.at = at
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
	text, never := forbidden(v)
	if never = never && (at.presence == schemas.Optional || at.entry); !never && at.presence == schemas.Optional && closedTo(v) {
		text, never = schemas.NeverSet, true
	}
	if never {
		if pos, ok := c.SourceOf(v); ok {
			n.Source = pos
		}
		forbid(n, text, cuevalue.DocOf(v))
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
		c.diags = c.diags[:before] // errors without data do not count
		c.attributes(n, v, at)
		return n
	}
	if s.limitsFields() && (s.literals == 0 || v.IncompleteKind() == cue.BottomKind) { // CUE finds too few fields without data
		c.leave(at, nil, "a limit on the number of fields", "")
	}
	refused := len(c.diags) > before
	whole := v
	if !at.vague {
		v = c.unrelated(v, at)
	}
	switch {
	case at.vague, at.recursive && s.split: // CUE dropped the alternatives that contain themselves
		c.vague(n, v, s, at)
	case len(at.pending) > 0 && s.kinds == cue.StructKind && !cuevalue.IsError(v):
		// Without data, CUE may not know yet whether the value is a struct.
		n.Kinds, n.Struct = schemas.StructKind, c.structOf(v, s, at)
	case v.IncompleteKind() == cue.BottomKind:
		c.bottom(n, v, s, at, refused)
	default:
		c.union(n, v, s, at, refused)
	}
	if s.limitsFields() && !at.vague {
		if n.Struct != nil && n.Union == nil && n.Kinds == schemas.StructKind {
			n.Struct.MinFields, n.Struct.MaxFields = s.minFields, s.maxFields
		} else {
			c.leaveTo(at, at, nil, "a limit on the number of fields beside alternatives")
		}
	}
	n.Message = at.message
	c.settle(n, at)
	c.attributes(n, whole, at)
	if len(at.reasons) > 0 && len(c.diags) == before {
		c.fallback(n, v, at)
	}
	return n
}

// unrelated returns what v says besides the relations to other fields that the survey has found.
func (c *Compiler) unrelated(v cue.Value, at *place) cue.Value {
	if len(at.dropped) > 0 {
		rest, ok := c.remaining(v, at)
		switch {
		case ok:
			v = rest
		case at.from != nil:
			c.untaken[at.path] = true
		default:
			c.leaveTo(at.parent, at, at.dropped[0], "a bound that is another field")
		}
	}
	switch {
	case at.beside != nil && at.from != nil:
		return *at.beside
	case at.loose:
		return c.scratch.BuildExpr(ast.NewIdent("string"))
	}
	return v
}

// bottom compiles a value that CUE cannot evaluate without data. That is allowed for a list with a
// minimum length: CUE checks the schema's own empty list and fails.
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

// maxMinItems is the maximum length of lists that the compiler builds to satisfy a schema.
const maxMinItems = 1024

// tops returns the list [_, _, ...] with n items.
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

func (s shape) limitsFields() bool { return s.minFields != nil || s.maxFields != nil }

// evaluated reports whether n has fallbacks or alternatives.
func evaluated(n *schemas.Node) (found bool) {
	n.Visit("", func(_ string, n *schemas.Node) {
		found = found || n.Fallback != nil || n.Union != nil || n.From != nil || n.Struct != nil && n.List != nil || n.Struct != nil && len(n.Struct.Conditions) > 0
	})
	return found
}

// forgets reports whether CUE accepts an item in the list that it rejects alone. Next to a limit, CUE
// may forget that items are closed.
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

// items compiles the node of the items of a list.
func (c *Compiler) items(list, v cue.Value, s shape, at *place) *schemas.Node {
	n := c.node(v, at.partPlace("[]", schemas.Required))
	if s.unique && n.Kinds&(schemas.ListKind|schemas.StructKind) != 0 {
		c.leaveTo(at, at, nil, "a list without duplicates whose items may be lists or structs")
	}
	if s.limited() && evaluated(n) && !(s.unique && n.Kinds&(schemas.ListKind|schemas.StructKind) != 0) && len(c.diags) == 0 {
		if c.forgets(list, v, n, s) {
			c.leaveTo(at, at, nil, "a list with a limit in which CUE forgets what its items are closed to")
		}
	}
	if n.Kinds == schemas.AnyKind && len(n.Scalars) == 0 && n.List == nil && n.Struct == nil && n.Fallback == nil &&
		!n.Sensitive && n.Immutable == nil && n.Format == "" && !n.Embedded {
		return nil
	}
	return n
}

// list compiles a list, or an alternative that is a list.
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
