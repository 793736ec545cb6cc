package absent

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
)

// An expression that selects an optional field fails if the object does not have the field. Its rule
// then rejects the object with a message that does not help the author. So compiling warns of
// expressions that do not test first whether the field exists.

// optionalMetadata are the fields of metadata that an object may lack.
var optionalMetadata = []string{"labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"}

// WarnOfFields warns of optional fields that expressions select and none of the tests checks. The
// expressions are evaluated together. roots has the schemas of the variables that are objects, or
// parts of objects.
func WarnOfFields(c *evaluation.Evaluation, expressions, tests []policy.Expression, paths []string, roots map[string]*schemas.Node) {
	tested := map[string]bool{}
	for _, e := range slices.Concat(expressions, tests) {
		selections, err := expr.Selections(e.Checked)
		if err != nil {
			return
		}
		for _, s := range selections {
			if s.Tested {
				tested[strings.Join(s.Fields, ".")] = true
			}
		}
	}
	for i, e := range expressions {
		selections, _ := expr.Selections(e.Checked)
		for _, s := range selections {
			fields := s.Fields
			if s.Tested {
				fields = fields[:len(fields)-1]
			}
			root := roots[s.Variable]
			if n := untested(root, fields, tested); n > 0 {
				name := s.Variable + "." + strings.Join(fields[:n], ".")
				c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: c.Within(e.Source, e.Text, 0, 0), Path: paths[i],
					Message: fmt.Sprintf("%s is optional: of an object without it this cannot be evaluated", strings.Join(fields[:n], ".")),
					Hint:    fmt.Sprintf("write !has(%s) || …", strings.ReplaceAll(name, ".*", "[…]")), Lint: "OPTIONAL_UNTESTED"})
				break // one warning for each expression is enough
			}
		}
	}
}

// untested returns the length of the path to the first optional field that is not tested; 0 if there
// is none.
func untested(n *schemas.Node, fields []string, tested map[string]bool) int {
	if n == nil {
		return 0
	}
	if len(fields) > 1 && fields[0] == "metadata" {
		if slices.Contains(optionalMetadata, fields[1]) && !tested[strings.Join(fields[:2], ".")] {
			return 2
		}
		return 0
	}
	for i, name := range fields {
		if n == nil || n.Union != nil || n.Fallback != nil {
			return 0
		}
		if name == "*" && n.List != nil {
			n = n.List.Items
			continue
		}
		if n.Struct == nil {
			return 0
		}
		at := slices.IndexFunc(n.Struct.Fields, func(f schemas.Field) bool { return f.Name == name })
		if at < 0 {
			return 0
		}
		f := &n.Struct.Fields[at]
		if f.Presence == schemas.Optional && !tested[strings.Join(fields[:i+1], ".")] {
			return i + 1
		}
		n = f.Schema
	}
	return 0
}

// Objects returns the schemas of object and oldObject, by their names, if they are of a known kind.
func Objects(schema *schemas.Node) map[string]*schemas.Node {
	if schema == nil {
		return nil
	}
	return map[string]*schemas.Node{expr.VarObject: schema, expr.VarOldObject: schema}
}

// WarnOfFieldsIn warns of optional fields in an admission rule. Its conditions and variables may test
// fields for its checks. of are the schemas of the objects that it sees, nil for one that is unknown.
func WarnOfFieldsIn(c *evaluation.Evaluation, r *policy.Validation, path string, of []*schemas.Node) {
	var checks, tests []policy.Expression
	var paths []string
	for _, v := range slices.Concat(r.Variables, r.Match.Conditions) {
		tests = append(tests, v.Expression)
	}
	for _, v := range r.Validations {
		checks = append(checks, v.Expression)
		paths = append(paths, path+".validations."+v.ID[len(r.ID)+1:]+".expression")
	}
	for _, schema := range of {
		before := len(c.Warnings)
		if WarnOfFields(c, checks, tests, paths, Objects(schema)); len(c.Warnings) > before {
			return // other versions would give the same warning
		}
	}
}
