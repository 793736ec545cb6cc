package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// The cases of kube-apiserver's pkg/admission/plugin/policy/validating/typechecking_test.go. What is a warning in the status of a
// policy there is an error of the bundle here, with its line, and says the same in other words. docs/CONFORMANCE.md lists those that cannot apply.

// checkedRule compiles a rule about deployments of a schema, and returns the mistakes, each with the path in the bundle.
func checkedRule(t *testing.T, schema, rule string) (mistakes []string) {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue": {Data: []byte(`package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"]
	kinds: "deployments.apps.example.com": {group: "apps.example.com", names: {kind: "Deployment", plural: "deployments"}, storageVersion: "v1", versions: v1: #schema: ` + schema + `}
	kinds: "pods.apps.example.com": {group: "apps.example.com", names: {kind: "Pod", plural: "pods"}, storageVersion: "v1", versions: v1: {#schema: {image?: string, status?: phase?: string}, subresources: status: {}}}
	admission: validate: r: {` + rule + `}}}`)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	_, diags := compile.Bundle(source)
	for _, d := range diags {
		if d.Pos.Line == 0 {
			t.Errorf("no line: %v", d)
		}
		mistakes = append(mistakes, strings.TrimPrefix(d.Path, "bundle.teams.t.admission.validate.r.")+": "+d.Message)
	}
	return mistakes
}

const deploymentMatch = `match: {apiGroups: ["apps.example.com"], apiVersions: ["v1"], resources: ["deployments"]}`

// TestUpstreamTypeCheck has the cases of TestTypeCheck. An object always has the fields that a case gives it.
func TestUpstreamTypeCheck(t *testing.T) {
	const first, second, message = "validations.first.expression", "validations.second.expression", "validations.first.messageExpression"
	for _, c := range []struct {
		name, schema, rule string
		at                 []string // the expressions that are wrong
		says               string
	}{
		{"passed check", "{foo!: string}", `validations: first: expression: "object.foo == 'bar'"`, nil, ""},
		{"undefined field", "{bar!: string}", `validations: first: expression: "object.foo == 'bar'"`, []string{first}, "undefined field 'foo'"},
		{"field type mismatch", "{foo!: int}", `validations: first: expression: "object.foo == 'bar'"`, []string{first}, "== cannot be applied to int and string"},
		{"params", "{foo!: string}", `paramKind: {apiVersion: "apps.example.com/v1", kind: "Deployment"}, paramRef: {name: "x", parameterNotFoundAction: "Deny"}
			validations: first: expression: "object.foo == params.bar"`, []string{first}, "undefined field 'bar'"},
		{"params with untyped schema", "{...}", `paramKind: {apiVersion: "apps.example.com/v1", kind: "Deployment"}, paramRef: {name: "x", parameterNotFoundAction: "Deny"}
			validations: first: expression: "params != null"`, nil, ""},
		{"multiple expressions", "{foo!: string}", `validations: {first: expression: "object.foo == 'bar'", second: expression: "object.bar == 'foo'"}`, []string{second}, ""},
		{"message expressions", "{foo!: string}", `validations: first: {expression: "object.foo == 'bar'", messageExpression: "object.foo + 114514"}`, []string{message}, ""},
		{"authorizer", "{foo!: string}", `validations: first: expression: "authorizer.group('').resource('endpoints').check('create').allowed()"`, nil, ""},
		{"authorizer invalid", "{foo!: string}", `validations: first: expression: "authorizer.allowed()"`, []string{first}, "found no matching overload for 'allowed' applied to 'kubernetes.authorization.Authorizer"},
		{"additionalProperties: true", "{spec!: text?: string, status?: problematicProperty?: {...}}", `validations: first: expression: "has(object.spec.text)"`, nil, ""},
		{"schema without type", "{...}", `validations: first: expression: "true"`, nil, ""},
		{"variables valid", "{foo!: int}", `variables: works: "true", validations: first: expression: "variables.works"`, nil, ""},
		{"variables missing field", "{foo!: int}", `variables: works: "true", validations: first: expression: "variables.nonExisting && variables.works"`, []string{first}, "nonExisting"},
		{"variables field wrong type", "{foo!: int}", `variables: name: "'something'", validations: first: expression: "variables.name == object.foo"`, []string{first}, "== cannot be applied to string and int"},
		// Upstream does not report what is wrong in a variable.
		{"error in variables, not reported during type checking.", "{foo!: int}", `variables: name: "object.foo == 'str'", validations: first: expression: "variables.name == object.foo"`, []string{"variables.name"}, "== cannot be applied to int and string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mistakes := checkedRule(t, c.schema, deploymentMatch+"\n"+c.rule)
			if len(mistakes) != len(c.at) {
				t.Fatalf("%q, want mistakes at %q", mistakes, c.at)
			}
			for i, at := range c.at {
				if !strings.HasPrefix(mistakes[i], at+":") || !strings.Contains(mistakes[i], c.says) {
					t.Errorf("%s, want %q at %s", mistakes[i], c.says, at)
				}
			}
		})
	}
}

// TestUpstreamExtractTypeNames has the cases of TestExtractTypeNames: the kinds of which expressions are checked are those for which a
// field that they do not have is a mistake.
func TestUpstreamExtractTypeNames(t *testing.T) {
	for _, c := range []struct {
		name, match, expression string
		checked                 bool
	}{
		{"specific", `apiVersions: ["v1"], resources: ["deployments"]`, "object.none == 'x'", true},
		{"multiple", `apiVersions: ["v1"], resources: ["deployments", "pods"]`, "has(object.image)", true}, // deployments have none
		{"multiple, a field of all", `apiVersions: ["v1"], resources: ["deployments", "pods"]`, "object.metadata.name != ''", false},
		{"all resources", `apiVersions: ["v1"], resources: ["*"]`, "object.none == 'x'", false},
		{"sub resources", `apiVersions: ["v1"], resources: ["pods/*"]`, "object.none == 'x'", true},      // upstream does not check these
		{"mixtures", `apiVersions: ["v1", "*"], resources: ["deployments"]`, "object.none == 'x'", true}, // upstream leaves "*" out
	} {
		mistakes := checkedRule(t, "{foo?: string}", fmt.Sprintf(`match: {apiGroups: ["apps.example.com"], %s}, validations: first: expression: %q`, c.match, c.expression))
		if (len(mistakes) > 0) != c.checked {
			t.Errorf("%s: %q", c.name, mistakes)
		}
	}
}
