package compile

import (
	"fmt"
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// A param that no expression reads has no effect. It is probably misspelled, so that the limit it
// should change stays the same.

// param is a param of an admission rule, with its position and whether an expression reads it.
type param struct {
	at       schemas.Position
	path     string
	name     string
	siblings []string // those that are read
	read     bool
}

// paramsOf records which params of a rule its expressions read.
func (c *compiler) paramsOf(v cue.Value, expressions []policy.Expression) {
	params := v.LookupPath(cue.ParsePath("params"))
	if !params.Exists() {
		return
	}
	read := c.paramsInCUE()
	for _, e := range expressions {
		selections, _ := expr.Selections(e.Checked)
		for _, s := range selections {
			if s.Variable == expr.VarParams {
				read = append(read, s.Fields)
			}
		}
	}
	c.paramsIn(params, nil, read)
}

// paramsIn records the params in a struct. read has the paths that are read.
func (c *compiler) paramsIn(v cue.Value, at []string, read [][]string) {
	var siblings []string
	for label := range evaluation.FieldsOf(v) {
		if label.IsString() && reads(read, append(slices.Clip(at), label.Unquoted())) != notRead {
			siblings = append(siblings, label.Unquoted())
		}
	}
	for label, x := range evaluation.FieldsOf(v) {
		if !label.IsString() {
			continue
		}
		name := label.Unquoted()
		path := append(slices.Clip(at), name)
		switch how := reads(read, path); {
		case how == readInside && x.IncompleteKind() == cue.StructKind:
			c.paramsIn(x, path, read)
		default:
			c.params = append(c.params, param{evaluation.Position(x), x.Path().String(), name, siblings, how != notRead})
		}
	}
}

type howRead int

const (
	notRead    howRead = iota
	readInside         // only parts of it are read
	readWhole
)

// reads reports whether one of the paths read leads to a param, or into it.
func reads(read [][]string, path []string) howRead {
	how := notRead
	for _, r := range read {
		switch {
		case len(r) <= len(path) && matches(r, path[:len(r)]):
			return readWhole
		case len(r) > len(path) && matches(r[:len(path)], path):
			how = readInside
		}
	}
	return how
}

func matches(read, path []string) bool {
	for i := range read {
		if read[i] != path[i] && read[i] != "*" {
			return false
		}
	}
	return true
}

// paramsInCUE returns the params that the bundle reads in CUE, for example in a message.
func (c *compiler) paramsInCUE() (read [][]string) {
	if c.paramsRead != nil {
		return slices.Clone(*c.paramsRead)
	}
	for path, i := range c.Instances {
		if path == evaluation.DefinitionsPath {
			continue
		}
		for _, f := range i.Files {
			selected := map[ast.Node]bool{}
			ast.Walk(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && isParams(s.X) {
					name, _, _ := ast.LabelName(s.Sel)
					read = append(read, []string{name})
					selected[s.X] = true
				}
				if isParams(n) && !selected[n] {
					read = append(read, []string{})
				}
				return true
			}, nil)
		}
	}
	c.paramsRead = &read
	return slices.Clone(read)
}

// isParams reports whether a CUE expression refers to params.
func isParams(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.Ident:
		return n.Name == expr.VarParams && n.Node != nil // a resolved reference, not a label
	case *ast.SelectorExpr:
		name, _, _ := ast.LabelName(n.Sel)
		return name == expr.VarParams
	}
	return false
}

// unreadParams rejects params that nothing reads. If several rules share a param, one of them has to
// read it.
func (c *compiler) unreadParams() {
	read := map[schemas.Position]bool{}
	for _, p := range c.params {
		read[p.at] = read[p.at] || p.read
	}
	for _, p := range c.params {
		if !read[p.at] {
			read[p.at] = true
			c.Add(p.at, p.path, fmt.Sprintf("no expression of the rule reads params.%s", p.name), wording.DidYouMean(p.name, p.siblings, "the rule reads"))
		}
	}
}
