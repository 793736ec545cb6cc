package evaluation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// Authors write what YAML, JSON Schema and other languages have. What CUE reads as something else is found in the syntax, and
// said before what CUE makes of it.

// habits reports such things in the bundle's own packages. Other errors of the same lines follow from them.
func (c *Evaluation) habits() {
	for path, i := range c.Instances {
		if path == DefinitionsPath {
			continue
		}
		for _, f := range i.Files {
			if pos, ours := bundles.Locate(f.Pos()); ours && !strings.HasPrefix(pos.File, "cue.mod/") {
				c.habitsIn(f.Decls, nil)
			}
		}
	}
}

// habitsIn reports them in the declarations of the struct at a path.
func (c *Evaluation) habitsIn(decls []ast.Decl, at []string) {
	for n, d := range decls {
		switch x := d.(type) {
		case *ast.Field:
			path := at
			if label, _, err := ast.LabelName(x.Label); err == nil {
				path = append(slices.Clip(at), quotedLabel(label))
			}
			if item, ok := dashed(x.Value); ok {
				c.dashes(x, path, item, decls[n+1:])
				continue
			}
			if _, hidden := x.Label.(*ast.Ident); !hidden || !strings.HasPrefix(strings.Join(path[max(len(path)-1, 0):], ""), "_") {
				c.bytesIn(x.Value, path)
			}
			c.habitsBelow(x.Value, path)
		case *ast.EmbedDecl:
			c.habitsBelow(x.Expr, at)
		case *ast.Comprehension:
			c.habitsBelow(x.Value, at)
		}
	}
}

// quotedLabel returns a label as CUE's errors show it in a path.
func quotedLabel(label string) string {
	if ast.IsValidIdent(label) {
		return label
	}
	return strconv.Quote(label)
}

func (c *Evaluation) habitsBelow(e ast.Node, at []string) {
	ast.Walk(e, func(n ast.Node) bool {
		s, ok := n.(*ast.StructLit)
		if ok {
			c.habitsIn(s.Elts, at)
		}
		return !ok
	}, nil)
}

// bytesIn reports texts in single quotes, which are bytes in CUE, where a value of JSON stands.
func (c *Evaluation) bytesIn(e ast.Node, at []string) {
	ast.Walk(e, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.StructLit, *ast.CallExpr, *ast.Interpolation:
			return false
		case *ast.BasicLit:
			if x.Kind != token.STRING || !strings.HasPrefix(strings.TrimLeft(x.Value, "#"), "'") {
				return false
			}
			text := "…"
			if s, err := literal.Unquote(x.Value); err == nil {
				text = s
			}
			c.explain(x, at, fmt.Sprintf("%s is bytes: that is what single quotes mean in CUE", shortened(x.Value, maxValue)), "write "+strconv.Quote(wording.Cut(text, maxValue)))
		}
		return true
	}, nil)
}

// dashes reports a list that is written as in YAML. CUE reads its first item as a negative value of the field, and others as
// embedded values.
func (c *Evaluation) dashes(f *ast.Field, at []string, first string, behind []ast.Decl) {
	items, last := []string{first}, f.Value
	for _, d := range behind {
		e, ok := d.(*ast.EmbedDecl)
		if !ok {
			break
		}
		item, ok := dashed(e.Expr)
		if !ok {
			break
		}
		items, last = append(items, item), e.Expr
	}
	label := strings.Join(at[max(len(at)-1, 0):], "")
	c.explain(f.Value, at, "CUE has no lists of lines that begin with -", fmt.Sprintf("write %s: [%s]", label, strings.Join(items, ", ")))
	if from, ok := bundles.Locate(f.Value.Pos()); ok {
		for line := from.Line; line <= last.Pos().Line(); line++ {
			c.explained[schemas.Position{File: from.File, Line: line}] = true
		}
	}
}

// dashed returns the item of a list of YAML: what stands behind a minus that can be no number.
func dashed(e ast.Expr) (item string, ok bool) {
	u, ok := e.(*ast.UnaryExpr)
	if !ok || u.Op != token.SUB {
		return "", false
	}
	switch x := u.X.(type) {
	case *ast.Ident:
		if x.Node != nil || slices.Contains(predeclared, x.Name) {
			return "", false
		}
		return strconv.Quote(x.Name), true
	case *ast.BasicLit:
		return x.Value, x.Kind == token.STRING
	}
	return "", false
}

// predeclared are CUE's own names that may be numbers.
var predeclared = []string{"int", "number", "float", "uint", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "_"}

// explain reports a mistake, from which other errors of its line follow.
func (c *Evaluation) explain(n ast.Node, at []string, message, hint string) {
	pos, ok := bundles.Locate(n.Pos())
	if !ok {
		return
	}
	c.Add(pos, strings.Join(at, "."), message, hint)
	c.explained[schemas.Position{File: pos.File, Line: pos.Line}] = true
}

// isExplained reports whether an error stands on a line whose mistake has been explained.
func (c *Evaluation) isExplained(d *schemas.Diagnostic) bool {
	return c.explained[schemas.Position{File: d.Pos.File, Line: d.Pos.Line}] && d.Pos.Line > 0
}

// typeNames are types by the names of other languages.
var typeNames = map[string]string{
	"integer": "int", "long": "int", "Int": "int", "boolean": "bool", "Boolean": "bool", "Bool": "bool", "str": "string", "String": "string", "text": "string", "double": "number", "Float": "number", "decimal": "number",
	"array": "[...string], or another type in place of string", "list": "[...string], or another type in place of string", "object": "{…} with the fields, or [string]: string for a map",
	"map": "[string]: string", "dict": "[string]: string", "any": "_", "Any": "_", "True": "true", "TRUE": "true", "yes": "true", "False": "false", "FALSE": "false", "no": "false",
	"None": "null", "nil": "null", "NULL": "null", "undefined": "null", "datetime": "time.Time, with import \"time\"", "timestamp": "time.Time, with import \"time\"", "date": "string @k8s(format=date)", "duration": "time.Duration, with import \"time\"",
	"quantity": "string @k8s(format=quantity)", "regex": "=~\"^…$\"", "enum": "\"a\" | \"b\"", "uuid": "string @k8s(format=uuid)",
}

// fieldWords are names of fields by the words that other systems have for them.
var fieldWords = map[string][]string{
	"users": {"subjects"}, "user": {"subjects"}, "groups": {"subjects"}, "userGroups": {"subjects"}, "group": {"subjects"}, "serviceAccounts": {"subjects"}, "serviceAccount": {"subjects"}, "members": {"subjects"}, "subject": {"subjects"},
	"role": {"clusterRole"}, "roleRef": {"clusterRole"}, "roles": {"clusterRole", "clusterRoles"}, "roleBindings": {"bindings"}, "clusterRoleBindings": {"bindings"}, "deny": {"denies"}, "condition": {"when", "unless"}, "if": {"when", "unless"},
	"except": {"unless"}, "message": {"reason"}, "messages": {"message"}, "rule": {"rules", "expression"}, "expr": {"expression"}, "cel": {"expression", "rule"}, "validate": {"validations"}, "validation": {"validations"},
	"matchConstraints": {"match"}, "resourceRules": {"match"}, "matchConditions": {"conditions"}, "validationAction": {"validationActions"}, "enforcementAction": {"validationActions"}, "action": {"validationActions"},
	"properties": {"#schema"}, "openAPIV3Schema": {"#schema"}, "storage": {"storageVersion"}, "printerColumns": {"additionalPrinterColumns"}, "columns": {"additionalPrinterColumns"},
	"paths": {"nonResourceURLs"}, "urls": {"nonResourceURLs"}, "nonResourceUrls": {"nonResourceURLs"}, "priority": {"matchingPrecedence", "order"}, "precedence": {"matchingPrecedence"}, "shares": {"nominalConcurrencyShares"},
	"owner": {"contact"}, "email": {"contact"}, "mutations": {"mutate"}, "validations": {"validate"}, "customResourceDefinitions": {"crds"}, "where": {"filter"}, "orderBy": {"sort"}, "ttl": {"history", "records"},
}

// otherWord returns the field that another system calls by a name; "" if none of those that are allowed is known to be it.
func otherWord(name string, allowed []string) string {
	for _, word := range fieldWords[name] {
		if slices.Contains(allowed, word) {
			return word
		}
	}
	return ""
}
