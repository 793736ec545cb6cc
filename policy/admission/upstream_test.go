package admission_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// The test cases of kube-apiserver's validator are read from its source and decided here. A case says what its expressions
// evaluate to; expressions with that result stand in for them.

// inapplicable are the cases that say something of kube-apiserver's inside only.
var inapplicable = map[string]string{
	"test filter error":                      "the function that evaluates all expressions cannot fail as a whole",
	"test filter error multiple evaluations": "the function that evaluates all expressions cannot fail as a whole",
	"messageExpression out of budget after successful eval of expression": "the budget of a rule is not given from outside",
}

// upstreamCase is a test case of kube-apiserver.
type upstreamCase struct {
	name               string
	ignore             bool
	matcher            string // "", false or error
	expressions        []upstreamExpression
	messages, audit    []string // CEL
	decisions          []upstreamDecision
	annotationOutcomes []upstreamAnnotation
}

type upstreamExpression struct{ stands, text, message, reason string }
type upstreamDecision struct{ action, message, reason string }
type upstreamAnnotation struct{ action, value string }

const failing = `['x'][5] == 'x'`

func TestUpstreamCasesOfTheValidator(t *testing.T) {
	cases := readCases(t)
	if len(cases) < 30 {
		t.Fatalf("upstream has %d cases", len(cases))
	}
	form := baseForm(t)
	passed := 0
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if why := inapplicable[c.name]; why != "" {
				t.Skip(why)
			}
			c.decide(t, form)
			passed++
		})
	}
	t.Logf("%d of %d cases pass, %d cannot apply", passed, len(cases), len(inapplicable))
}

// decide decides a case and compares the decisions.
func (c *upstreamCase) decide(t *testing.T, base *policy.Form) {
	f := *base
	rule := policy.Validation{ID: "t/validate/r", Match: base.Validations[0].Match, Actions: []string{"Deny"}, Ignore: c.ignore}
	switch c.matcher {
	case "false":
		rule.Match.Conditions = []policy.Variable{{Name: "c", Expression: checked(t, "false")}}
	case "error":
		rule.Match.Conditions = []policy.Variable{{Name: "c", Expression: checked(t, failing)}}
	}
	for i, x := range c.expressions {
		e := checked(t, x.stands)
		e.Text = x.text
		check := policy.ValidationCheck{ID: fmt.Sprint("t/validate/r/", i), Expression: e, Message: x.message, Reason: cmp.Or(x.reason, "Invalid")} // the default of the bundle
		if i < len(c.messages) && c.messages[i] != "" {
			m := checked(t, c.messages[i])
			check.MessageExpression = &m
		}
		rule.Validations = append(rule.Validations, check)
	}
	for i, x := range c.audit {
		rule.Annotations = append(rule.Annotations, policy.Variable{Name: fmt.Sprint("a", i), Expression: checked(t, x)})
	}
	f.Validations, f.Probes = []policy.Validation{rule}, nil
	encoded, _ := f.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		t.Fatal(err)
	}
	a := &admission.Attributes{Request: &policy.Request{User: "u", Verb: "create"}, Operation: policy.Create, Object: &policy.Object{Meta: &metav1.ObjectMeta{Name: "foo"}, Content: map[string]any{}}}
	v := p.Version(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	findings := admission.MustOf(p).Validate(t.Context(), v, a)
	c.compare(t, findings, a.Annotations)
}

func (c *upstreamCase) compare(t *testing.T, findings []admission.Finding, annotations []admission.Annotation) {
	byRule := map[string]*admission.Finding{}
	for i := range findings {
		byRule[findings[i].Rule] = &findings[i]
	}
	for i, want := range c.decisions {
		got := byRule[fmt.Sprint("t/validate/r/", i)]
		if c.matcher == "error" {
			got = byRule["t/validate/r"]
		}
		if (got != nil) != (want.action == "ActionDeny") {
			t.Errorf("decision %d is %+v, want %s", i, got, want.action)
			continue
		}
		if got != nil && (!strings.Contains(got.Message, want.message) || want.reason != "" && string(got.Reason) != want.reason) {
			t.Errorf("decision %d is %+v, want %+v", i, got, want)
		}
	}
	if len(c.decisions) == 0 && len(c.annotationOutcomes) == 0 && len(findings) > 0 {
		t.Errorf("there are findings: %+v", findings)
	}
	published := map[string]string{}
	for _, x := range annotations {
		published[x.Key] = x.Value
	}
	errors := 0
	for i, want := range c.annotationOutcomes {
		got, is := published[fmt.Sprint("t/validate/r/a", i)]
		if is != (want.action == "AuditAnnotationActionPublish") || got != want.value {
			t.Errorf("annotation %d is %q, want %+v", i, got, want)
		}
		if want.action == "AuditAnnotationActionError" {
			errors++
		}
	}
	if len(c.annotationOutcomes) > 0 && (byRule["t/validate/r"] != nil) != (errors > 0) {
		t.Errorf("the findings are %+v, and %d annotations cannot be evaluated", findings, errors)
	}
}

// compiled has the forms of one rule with an expression, by the expression.
var compiled = map[string]*policy.Form{}

func formOf(t *testing.T, expression, kind string) *policy.Form {
	t.Helper()
	if f := compiled[kind+expression]; f != nil {
		return f
	}
	part := fmt.Sprintf("validations: x: expression: %q", expression)
	if kind == "text" {
		part = fmt.Sprintf("validations: x: expression: \"true\", auditAnnotations: x: valueExpression: %q", expression)
	}
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue": {Data: []byte(`package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"]
	admission: validate: r: {match: {apiGroups: [""], resources: ["namespaces"]}, ` + part + `}}}`)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	result, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(expression, diags)
	}
	compiled[kind+expression] = result.Form
	return result.Form
}

func baseForm(t *testing.T) *policy.Form { return formOf(t, "true", "bool") }

// checked returns an expression that has been type-checked.
func checked(t *testing.T, text string) policy.Expression {
	t.Helper()
	if text == "true" || text == "false" || text == failing {
		return formOf(t, text, "bool").Validations[0].Validations[0].Expression
	}
	return formOf(t, text, "text").Validations[0].Annotations[0].Expression
}

// readCases reads the cases of TestValidate from the source of k8s.io/apiserver.
func readCases(t *testing.T) (cases []*upstreamCase) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/apiserver").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "pkg/admission/plugin/policy/validating/validator_test.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		f, ok := n.(*ast.FuncDecl)
		if ok && f.Name.Name != "TestValidate" {
			return false
		}
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != 1 {
			return true
		}
		if id, ok := assign.Lhs[0].(*ast.Ident); ok && id.Name == "cases" {
			for _, x := range assign.Rhs[0].(*ast.CompositeLit).Elts {
				cases = append(cases, readCase(t, x.(*ast.CompositeLit)))
			}
		}
		return true
	})
	return cases
}

// fieldsOf returns the fields of a composite literal.
func fieldsOf(x ast.Expr) map[string]ast.Expr {
	if u, ok := x.(*ast.UnaryExpr); ok {
		x = u.X
	}
	fields := map[string]ast.Expr{}
	if lit, ok := x.(*ast.CompositeLit); ok {
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				fields[kv.Key.(*ast.Ident).Name] = kv.Value
			}
		}
	}
	return fields
}

func items(x ast.Expr) (list []ast.Expr) {
	if lit, ok := x.(*ast.CompositeLit); ok {
		return lit.Elts
	}
	return nil
}

// name returns the last part of a name.
func name(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.UnaryExpr:
		return name(x.X)
	}
	return ""
}

// text returns the value of a string expression.
func text(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(x.Value)
		return s
	case *ast.CallExpr:
		if name(x.Fun) == "Repeat" { // of one character, one more than the maximum length of messages
			return strings.Repeat(text(x.Args[0]), 5*1024+1)
		}
	}
	return ""
}

func readCase(t *testing.T, x *ast.CompositeLit) *upstreamCase {
	f := fieldsOf(x)
	c := &upstreamCase{name: text(f["name"]), ignore: name(f["failPolicy"]) == "ignore"}
	if m := fieldsOf(f["matcher"]); len(m) > 0 {
		switch {
		case m["error"] != nil:
			c.matcher = "error"
		case name(m["matches"]) == "false":
			c.matcher = "false"
		}
	}
	for _, x := range items(f["evaluations"]) {
		e, of := fieldsOf(x), fieldsOf(fieldsOf(x)["ExpressionAccessor"])
		c.expressions = append(c.expressions, upstreamExpression{stands: standIn(t, e, true), text: text(of["Expression"]), message: text(of["Message"]), reason: reason(of["Reason"])})
	}
	for _, x := range items(f["messageEvaluations"]) {
		c.messages = append(c.messages, standIn(t, fieldsOf(x), false))
	}
	for _, x := range items(f["auditEvaluations"]) {
		c.audit = append(c.audit, standIn(t, fieldsOf(x), false))
	}
	for _, x := range items(f["policyDecision"]) {
		d := fieldsOf(x)
		c.decisions = append(c.decisions, upstreamDecision{action: name(d["Action"]), message: text(d["Message"]), reason: reason(d["Reason"])})
	}
	for _, x := range items(f["auditAnnotations"]) {
		a := fieldsOf(x)
		c.annotationOutcomes = append(c.annotationOutcomes, upstreamAnnotation{action: name(a["Action"]), value: text(a["Value"])})
	}
	return c
}

func reason(x ast.Expr) string {
	switch name(x) {
	case "forbiddenReason", "StatusReasonForbidden":
		return "Forbidden"
	case "unauthorizedReason", "StatusReasonUnauthorized":
		return "Unauthorized"
	case "StatusReasonInvalid":
		return "Invalid"
	}
	return ""
}

// standIn returns an expression that evaluates to what a case says.
func standIn(t *testing.T, e map[string]ast.Expr, condition bool) string {
	result := e["EvalResult"]
	switch {
	case e["Error"] != nil && condition:
		return failing
	case e["Error"] != nil:
		return `['x'][5]`
	case result == nil && !condition:
		return "" // the validation has none
	case name(result) == "True":
		return "true"
	case name(result) == "False":
		return "false"
	case name(result) == "NullValue":
		return "null"
	}
	if call, ok := result.(*ast.CallExpr); ok && name(call.Fun) == "String" {
		return strconv.Quote(text(call.Args[0]))
	}
	if name(result) != "StringType" { // in a case that cannot apply
		t.Fatalf("the result %v is not known", result)
	}
	return "null"
}
