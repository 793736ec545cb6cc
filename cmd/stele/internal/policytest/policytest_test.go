package policytest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/run/plane/planetest"
)

// TestMain lets the test binary be the child processes that evaluate CUE.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "policy" {
		root := &cobra.Command{Use: "stele"}
		policy := &cobra.Command{Use: "policy"}
		policy.AddCommand(compiling.Command(), SuiteCommand())
		root.AddCommand(policy)
		if root.Execute() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// module writes a module into a new folder, and changes into it.
func module(t *testing.T, files string) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(files)).Files {
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// test runs the command and returns what it printed, and its exit code.
func test(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := Command()
	var out, err bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&err)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	failure := cmd.ExecuteContext(t.Context())
	if failure != nil && failure.Error() != "" {
		fmt.Fprintln(&err, "stele:", failure)
	}
	return out.String(), err.String(), usage.ExitCode(failure)
}

const shop = `
-- cue.mod/module.cue --
module: "shop.example"
language: version: "v0.17.0"
-- bundle.cue --
package shop

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "shop"
	teams: data: {
		contact: "#data", groups: ["shop.example"], namespaces: ["*"]
		kinds: "databases.shop.example": {
			group: "shop.example"
			names: {kind: "Database", plural: "databases"}
			storageVersion: "v1"
			versions: v1: {
				#schema: spec!: {size!: int & >0 & <=100, tier: *"dev" | "prod"}
				validations: grow: {path: "spec.size", rule: "self >= oldSelf", message: "it can only grow"}
			}
		}
		rbac: {
			clusterRoles: editor: rules: all: {apiGroups: ["shop.example"], resources: ["databases"], verbs: ["*"]}
			clusterRoles: maker: rules: all: {apiGroups: ["shop.example"], resources: ["databases"], verbs: ["create"]}
			bindings: editors: {clusterRole: "editor", subjects: [{group: "editors"}], namespaces: ["*"]}
			bindings: helpers: {clusterRole: "maker", subjects: [{user: "helper"}], namespaces: ["*"], when: "object.spec.tier == 'dev'"}
			denies: keep: {subjects: [{user: "eve"}], rules: all: {apiGroups: ["shop.example"], resources: ["databases"], verbs: ["delete"]}, reason: "eve keeps them"}
		}
		admission: validate: small: {
			match: {apiGroups: ["shop.example"], resources: ["databases"]}
			validations: size: {expression: "object.spec.size < 50 || object.spec.tier == 'prod'", message: "only prod is large"}
			validationActions: ["Warn"]
		}
	}
	flow: flowSchemas: bulk: {
		matchingPrecedence: 1000, priorityLevel: "workload-low", distinguisher: "ByUser", watches: 8, subjects: [{group: "editors"}]
		rules: lists: {apiGroups: ["shop.example"], resources: ["databases"], verbs: ["list", "watch"]}
	}
	audit: rules: lists: {order: 1, level: "Metadata", verbs: ["list"]}
}
`

const suite = shop + `
-- tests/tests.cue --
package tests

import "stele.dev/policy"

_db: {apiVersion: "shop.example/v1", kind: "Database", metadata: {name: string | *"orders", namespace: "default"}, spec: {...}}
suite: policy.#Suite & {
	people: eddie: {user: "eddie", groups: ["editors"]}
`

// TestEachExpectationCanFail has a table of expectations that are not met, and what is said.
func TestEachExpectationCanFail(t *testing.T) {
	module(t, suite+`
	given: [_db & {spec: size: 10}]
	tests: {
		allowed: {as: "eddie", request: {verb: "get", resource: "databases", namespace: "default", name: "orders"}, expect: allowed: false}
		code: {as: "eddie", request: {verb: "get", resource: "databases", namespace: "default", name: "other"}, expect: code: 200}
		stage: {as: {user: "eve"}, request: {verb: "delete", resource: "databases", namespace: "default", name: "orders"}, expect: stage: "validation"}
		rule: {as: "eddie", request: {verb: "create", object: _db & {metadata: name: "new", spec: size: 1}}, expect: rule: "data/bindings/helpers"}
		message: {as: {user: "eve"}, request: {verb: "delete", resource: "databases", namespace: "default", name: "orders"}, expect: message: "something else"}
		fields: {as: "eddie", request: {verb: "create", object: _db & {metadata: name: "new", spec: {size: 0, tier: "x"}}}, expect: fields: "spec.size": "positive"}
		object: {as: "eddie", request: {verb: "create", object: _db & {metadata: name: "new", spec: size: 1}}, expect: object: spec: {tier: "prod", other: 1}}
		warnings: {as: "eddie", request: {verb: "create", object: _db & {metadata: name: "new", spec: size: 60}}, expect: warnings: []}
		names: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: names: ["orders", "shop"]}
		condition: {as: {user: "helper"}, request: {verb: "create", object: _db & {metadata: name: "new", spec: {size: 1, tier: "prod"}}}, expect: code: 201}
		skipped: {skip: "not yet", as: "eddie", request: {verb: "list", resource: "databases"}, expect: code: 500}
		flow: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: {flowSchema: "global-default", priorityLevel: "global-default", audit: "Request"}}
		exempt: {as: {user: "system:anonymous"}, request: {verb: "get", path: "/livez"}, expect: {priorityLevel: "catch-all", audit: "Metadata"}}
		ofFlow: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: {flowSchema: "bulk", priorityLevel: "workload-low", audit: "Metadata", rule: "data/bindings/editors"}}
	}
	invariants: {
		only: {reason: "r1", only: {may: {verbs: ["create"], apiGroups: ["shop.example"], resources: ["databases"]}, subjects: [{group: "editors"}]}}
		never: {reason: "r2", never: {verbs: ["delete"], apiGroups: ["shop.example"], resources: ["databases"]}}
		always: {reason: "r3", always: {may: {verbs: ["delete"], apiGroups: ["shop.example"], resources: ["databases"]}, subjects: [{user: "eve"}]}}
		holds: {reason: "r4", always: {may: {verbs: ["delete"], apiGroups: ["shop.example"], resources: ["databases"]}, subjects: [{group: "editors"}]}}
	}
}
`)
	stdout, stderr, code := test(t, "-v")
	if code != 1 || stderr != "" {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"FAIL  .  allowed  tests/tests.cue:11\n      expected it to be refused, and got 200 by data/bindings/editors (bundle.cue:21)",
		"expected 200, and got 404",
		"expected in stage validation, and got 403 in stage authorization by data/denies/keep (bundle.cue:23)",
		"expected by data/bindings/helpers, and got 201 by data/bindings/editors (bundle.cue:21)",
		"expected the flow schema global-default, and got bulk (priority level workload-low, flow of the user eddie, at most 8 watches)\n      expected the priority level global-default, and got workload-low, of the flow schema bulk",
		"expected the priority level catch-all, and got exempt, of the flow schema probes",
		"expected the audit level Request, and got Metadata by audit/rules/lists (bundle.cue:35)",
		"expected the audit level Metadata, and got None: no audit rule matches",
		"ok    .  ofFlow",
		`expected a message that matches "something else", and got: databases.shop.example "orders" is forbidden`,
		`expected a message about spec.size that matches "positive", and got: Invalid value: 0`,
		"spec.tier is wrong, too: Unsupported value",
		"expected spec.other to be 1, and it is not set",
		`expected spec.tier to be "prod", and it is "dev"`,
		"there is a warning that is not expected: validation failed for rule data/validate/small/size (bundle.cue:27): only prod is large",
		"expected the objects orders, shop, and got orders",
		`"data/bindings/helpers" (bundle.cue:22) would allow it, but its condition does not hold: object.spec.tier == 'dev'`,
		`invariant "only" (r1)`, "a counterexample: User helper may create databases.shop.example",
		`invariant "never" (r2)`, "a counterexample: Group editors may delete databases.shop.example",
		`invariant "always" (r3)`, "a counterexample: User eve may not always delete databases.shop.example",
		`ok    .  invariant "holds" (r4)  tests/tests.cue:30`,
		"skip  .  skipped  tests/tests.cue:21\n      not yet\n",
		"FAIL  .  13 tests, 4 invariants, 1 skipped\n18 tests, 15 failed, 1 skipped. Not exercised by any test: ",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(stdout)
	}
}

// TestTestsDoNotSeeEachOther runs tests that write the same object, and one that finds nothing. Their order does not matter,
// and 20 runs print the same.
func TestTestsDoNotSeeEachOther(t *testing.T) {
	var tests strings.Builder
	for i := range 20 {
		fmt.Fprintf(&tests, `
		"create %d": {as: "eddie", request: {verb: "create", object: _db & {spec: size: 1}}, expect: code: 201}
		"list %[1]d": {as: "eddie", request: {verb: "list", resource: "databases"}, expect: names: []}
		"delete %[1]d": {given: [_db & {spec: size: 1}], as: "eddie", request: {verb: "delete", resource: "databases", namespace: "default", name: "orders"}, expect: code: 200}`, i)
	}
	module(t, suite+"	tests: {"+tests.String()+"\n	}\n}\n")
	first, stderr, code := test(t, "-v")
	if code != 0 {
		t.Fatal(first, stderr)
	}
	for range 3 {
		if again, _, _ := test(t, "-v"); again != first {
			t.Fatal(cmp.Diff(first, again))
		}
	}
}

// TestStoredObjectsMayViolateTheSchema: what an older schema admitted is there, and can be changed elsewhere.
func TestStoredObjectsMayViolateTheSchema(t *testing.T) {
	module(t, suite+`
	given: [_db & {spec: {size: 200, gone: "x"}}]
	tests: {
		label: {as: "eddie", request: {verb: "patch", resource: "databases", namespace: "default", name: "orders", patch: metadata: labels: a: "b"}, expect: {code: 200, object: spec: {size: 200, tier: "dev"}}}
		write: {as: "eddie", request: {verb: "patch", resource: "databases", namespace: "default", name: "orders", patch: spec: size: 201}, expect: {code: 422, fields: "spec.size": "at most 100"}}
		shrink: {as: "eddie", request: {verb: "update", object: _db & {spec: size: 100}}, expect: {code: 422, rule: "databases.shop.example/validations/grow"}}
	}
}
`)
	if stdout, stderr, code := test(t); code != 0 {
		t.Error(stdout, stderr)
	}
}

// TestWhatCannotRunIsSaid has suites with errors: nothing runs, and the exit code is 2.
func TestWhatCannotRunIsSaid(t *testing.T) {
	for _, tc := range []struct{ name, text, says string }{
		{"kind", `tests: t: {given: [{apiVersion: "shop.example/v1", kind: "Databse", metadata: {name: "x", namespace: "default"}}], as: "eddie", request: {verb: "list", resource: "databases"}, expect: code: 200}`, `tests/tests.cue:8: a given object cannot exist: the bundle has no kind Databse of shop.example/v1; did you mean "Database"?`},
		{"resource", `tests: t: {as: "eddie", request: {verb: "list", resource: "databses"}, expect: code: 200}`, `tests/tests.cue:8: t: the bundle serves no resource "databses"; did you mean "databases"?`},
		{"person", `tests: t: {as: "edie", request: {verb: "list", resource: "databases"}, expect: code: 200}`, `tests/tests.cue:8: the suite has no person "edie"; did you mean "eddie"?`},
		{"rule", `tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: rule: "data/bindings/editor"}`, `tests/tests.cue:8: t: the bundle has no rule "data/bindings/editor"; did you mean "data/bindings/editors"?`},
		{"flow schema", `tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: flowSchema: "bluk"}`, `tests/tests.cue:8: t: the bundle has no flow schema "bluk"; did you mean "bulk"?`},
		{"priority level", `tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: priorityLevel: "worklod-low"}`, `tests/tests.cue:8: t: the bundle has no priority level "worklod-low"; did you mean "workload-low"?`},
		{"nothing expected", `tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}}`, `tests/tests.cue:8: t: the test expects nothing`},
		{"name", `tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}, expekt: code: 200}`, `tests/tests.cue:8: suite.tests.t.expekt: field not allowed; did you mean "expect"?`},
		{"regular expression", `tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: message: "("}`, `is not a regular expression`},
		{"authorizer", `authorizers: "plugin:x": "Deny", tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: code: 200}`, `the bundle's chain has no authorizer "plugin:x"`},
		{"invariant", `invariants: i: reason: "r"`, `tests/tests.cue:8: an invariant says exactly one of only, never and always`},
		{"group of an invariant", `invariants: i: {reason: "r", never: {verbs: ["get"], apiGroups: ["shop.exampel"], resources: ["databases"]}}`, `no kind and no rule of the bundle has the group "shop.exampel"; did you mean "shop.example"?`},
		{"core resource of an invariant", `invariants: i: {reason: "r", never: {verbs: ["get"], apiGroups: [""], resources: ["secretz"]}}`, `no kind and no rule of the bundle has the resource "secretz"; did you mean "secrets"?`},
		{"selector", `tests: t: {as: "eddie", request: {verb: "get", resource: "databases", namespace: "default", name: "x", labelSelector: "a=b"}, expect: code: 404}`, `a request with the verb get has no labelSelector`},
		{"bundle", `clusters: ["clusters/dev"]`, `tests/tests.cue:8: the module has no bundle in the folder "clusters/dev"`},
		{"conflict", `tests: t: {as: "eddie", request: verb: "list", expect: code: 200, cases: c: request: {verb: "get", resource: "databases"}}`, `conflicting values`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			module(t, suite+tc.text+"\n}\n")
			stdout, stderr, code := test(t)
			if code != 2 || stdout != "" || !strings.Contains(stderr, tc.says) {
				t.Errorf("exit code %d\n%s%s\nwant %s", code, stdout, stderr, tc.says)
			}
		})
	}
}

// TestEndlessSuitesEnd: CUE that computes for a very long time is stopped.
func TestEndlessSuitesEnd(t *testing.T) {
	module(t, suite+"}\n_n: [for a in _l for b in _l for c in _l for d in _l for e in _l {a + b + c + d + e}]\n_l: [for i in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] for j in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] {i * j}]\n_x: len(_n)\n#x: _x\nsuite: people: eddie: groups: [for x in _n {\"\\(x)\"}]\n")
	o := &options{limits: suiteLimits, format: "text"}
	o.limits.CPU = time.Second
	cmd := Command()
	var out, stderr bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&stderr)
	cmd.SetContext(t.Context())
	err := o.command(cmd, nil)
	if usage.ExitCode(err) != 2 || !strings.Contains(stderr.String(), "tests/tests.cue:1: the tests could not be evaluated: it takes more than 1s of processor time") {
		t.Errorf("%v\n%s", err, stderr.String())
	}
}

// TestAPackageOfTestsIsNoBundle: vet of everything takes neither for a bundle what has tests, nor the other way round.
func TestAPackageOfTestsIsNoBundle(t *testing.T) {
	module(t, suite+"}\n-- tests/more.cue --\npackage tests\n\nimport \"shop.example:shop\"\n\n_bundle: shop.bundle\n")
	targets, err := compiling.Targets([]string{"./..."})
	if err != nil || len(targets) != 1 || targets[0].Source.Package != "." {
		t.Errorf("%v, %v", targets, err)
	}
}

// TestUpdateWritesWhatTestsGot: the second run passes, and comments stay.
func TestUpdateWritesWhatTestsGot(t *testing.T) {
	module(t, suite+`
	tests: {
		// This comment stays.
		empty: {as: "eddie", request: {verb: "create", object: _db & {spec: size: 0}}}
		wrong: {
			as: "eddie"
			request: {verb: "create", object: _db & {spec: size: 1}}
			expect: code: 404 // and this one
		}
		object: {as: "eddie", request: {verb: "create", object: _db & {spec: size: 60}}, expect: {object: {}, warnings: []}}
		table: {
			request: {verb: "delete", resource: "databases", namespace: "default", name: "orders"}
			cases: {
				eve: {as: {user: "eve"}, expect: {code: 403, message: "nobody"}}
				eddie: {as: "eddie", expect: {allowed: true, rule: "data/bindings/editors"}}
			}
		}
	}
}
`)
	stdout, stderr, code := test(t, "--update")
	text, err := os.ReadFile("tests/tests.cue")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"This comment stays.", "code: 201", `size: 60`, `tier: "dev"`, `fields: {"spec.size": "Invalid value: 0: must be greater`, `is forbidden: User \"eve\"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the file lacks %q", want)
		}
	}
	if stderr != "updated tests/tests.cue\n" || code != 0 {
		t.Errorf("%d\n%s%s\n%s", code, stdout, stderr, text)
	}
	if stdout, stderr, code := test(t, "--update"); code != 0 || stderr != "" {
		t.Errorf("an update of tests that pass: %d\n%s%s", code, stdout, stderr)
	}
}

// An update leaves a suite that can be read: a request that is allowed now has neither a stage nor a message, a test may be
// written in several places, and a case does not contradict its test.
func TestUpdateKeepsSuitesReadable(t *testing.T) {
	module(t, suite+`
	tests: a: {as: "eddie", request: {verb: "create", object: _db & {spec: size: 1}}, expect: {code: 422, message: "too large"}}
	tests: a: expect: stage: "schema" // comment
	tests: b: {as: "eddie", request: {verb: "create", object: _db & {spec: size: 101}}, expect: stage: "validation"}
	tests: b: expect: code: 400
	tests: d: {as: "eddie", request: {verb: "create", object: _db & {spec: size: 1}}, expect: stage: "validation"}
	tests: c: {
		as: "eddie"
		request: verb: "create"
		expect: code: 422
		cases: {one: request: object: _db & {spec: size: 1}, two: request: object: _db & {spec: size: 101}}
	}
}
`)
	stdout, stderr, code := test(t, "--update")
	text, err := os.ReadFile("tests/tests.cue")
	if err != nil || code != 1 || !strings.Contains(stdout, "5 tests, 1 failed") || !strings.Contains(stdout, "c/one") {
		t.Errorf("%v, %d\n%s%s\n%s", err, code, stdout, stderr, text)
	}
	if again, stderr, _ := test(t); again != stdout {
		t.Errorf("%s%s\nafter:\n%s", again, stderr, stdout)
	}
}

// TestRunSelects by the names of tests, cases and invariants.
func TestRunSelects(t *testing.T) {
	module(t, suite+`
	tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}, cases: {a: expect: code: 200, b: expect: code: 201}}
	tests: u: {as: "eddie", request: {verb: "list", resource: "databases"}, expect: code: 202}
}
`)
	if stdout, stderr, code := test(t, "--run", "^t/a$", "-v"); code != 0 || stdout != "ok    .  t/a  tests/tests.cue:9\nok    .  1 test, 0 invariants\n1 test, none failed.\n" {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	if stdout, stderr, code := test(t, "--run", "nowhere"); code != 2 || stdout != "" || !strings.Contains(stderr, "no test and no invariant matches --run nowhere") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
}

// No fields at all is an expectation, too.
func TestNoFieldsAreExpected(t *testing.T) {
	module(t, suite+`
	tests: t: {as: "eddie", request: {verb: "create", object: _db & {spec: size: 101}}, expect: {code: 422, fields: {}}}
}
`)
	if stdout, stderr, code := test(t); code != 1 || !strings.Contains(stdout, "spec.size is wrong, too") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
}

// TestJUnit compares the JUnit report with a golden one.
func TestJUnit(t *testing.T) {
	module(t, suite+`
	tests: t: {as: "eddie", request: {verb: "list", resource: "databases"}, cases: {passes: expect: code: 200, fails: expect: code: 201}}
	tests: s: {skip: "later", as: "eddie", request: {verb: "list", resource: "databases"}, expect: code: 200}
}
`)
	stdout, _, code := test(t, "-o", "junit")
	for _, want := range []string{`<testsuite name="." tests="3" failures="1"`, `<testcase name="t/fails" classname="tests"`, "expected 201, and got 200 by data/bindings/editors (bundle.cue:21)", `<testcase name="t/passes" classname="tests"`, "<skipped message=\"later\""} {
		if code != 1 || !strings.Contains(stdout, want) {
			t.Errorf("%d: no %s in\n%s", code, want, stdout)
		}
	}
	github, _, _ := test(t, "-o", "github")
	if !strings.HasPrefix(github, "::error file=tests/tests.cue,line=9,") || strings.Count(github, "\n") != 1 {
		t.Error(github)
	}
	text, _, _ := test(t, "-o", "json")
	var d document
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.Passed != 1 || d.Failed != 1 || d.Skipped != 1 || len(d.Coverage) == 0 {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestARecordedRequestBecomesATest writes an object to a server, and runs the test that comes of it.
func TestARecordedRequestBecomesATest(t *testing.T) {
	module(t, shop)
	bundle, err := os.ReadFile("bundle.cue")
	if err != nil {
		t.Fatal(err)
	}
	p := planetest.Start(t, planetest.Options{Bundle: string(bundle)})
	config := p.Client("admin", "system:masters")
	audited := map[string]string{}
	as := func(user string, groups []string, do func(dynamic.ResourceInterface) error) {
		t.Helper()
		client, err := dynamic.NewForConfig(p.Client(user, groups...))
		if err != nil {
			t.Fatal(err)
		}
		if err := do(client.Resource(schema.GroupVersionResource{Group: "shop.example", Version: "v1", Resource: "databases"}).Namespace("default")); err != nil {
			t.Fatal(err)
		}
	}
	database := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "shop.example/v1", "kind": "Database", "metadata": map[string]any{"name": "orders"}, "spec": map[string]any{"size": int64(7)},
	}}
	as("helper", nil, func(r dynamic.ResourceInterface) error {
		_, err := r.Create(context.Background(), database, metav1.CreateOptions{})
		return err
	})
	as("eddie", []string{"editors"}, func(r dynamic.ResourceInterface) error {
		_, err := r.Patch(context.Background(), "orders", "application/merge-patch+json", []byte(`{"spec":{"size":8}}`), metav1.PatchOptions{})
		return err
	})
	as("eddie", []string{"editors"}, func(r dynamic.ResourceInterface) error {
		return r.Delete(context.Background(), "orders", metav1.DeleteOptions{})
	})
	admin, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := admin.Resource(schema.GroupVersionResource{Group: "log.stele.dev", Version: "v1", Resource: "changes"}).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("tests", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		resource, _, _ := unstructured.NestedString(c.Object, "object", "resource")
		id, _, _ := unstructured.NestedString(c.Object, "request", "auditID")
		kind, _, _ := unstructured.NestedString(c.Object, "type")
		if resource != "databases" {
			continue
		}
		audited[kind] = id
		text, err := testOf(t.Context(), config, id)
		if err != nil {
			t.Fatal(kind, err)
		}
		if err := os.WriteFile(filepath.Join("tests", kind+".cue"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, code := test(t, "-v")
	if code != 0 || len(audited) != 3 || !strings.Contains(stdout, "3 tests, none failed") {
		updated, _ := os.ReadFile("tests/Updated.cue")
		t.Errorf("%v, %d\n%s%s\n%s", audited, code, stdout, stderr, updated)
	}
	if _, err := testOf(t.Context(), config, "nothing"); err == nil || !strings.Contains(err.Error(), `has the audit id "nothing"`) {
		t.Error(err)
	}
}

// TestManyTestsAreFast: a thousand tests take less than the 5 s that they may, with much to spare for a busy machine.
func BenchmarkThousandTests(b *testing.B) {
	var tests strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&tests, "\n\t\t\"t%d\": {given: [_db & {spec: size: 1}], as: \"eddie\", request: {verb: \"patch\", resource: \"databases\", namespace: \"default\", name: \"orders\", patch: spec: size: %d}, expect: code: 200}", i, 1+i%40)
	}
	dir := b.TempDir()
	for _, f := range txtar.Parse([]byte(suite + "\ttests: {" + tests.String() + "\n\t}\n}\n")).Files {
		file := filepath.Join(dir, f.Name)
		os.MkdirAll(filepath.Dir(file), 0o755)
		if err := os.WriteFile(file, f.Data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	b.Chdir(dir)
	for b.Loop() {
		cmd := Command()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(nil)
		if err := cmd.ExecuteContext(b.Context()); err != nil {
			b.Fatal(err, out.String())
		}
	}
}

// TestTheExampleOfTheDocumentationPasses runs the bundle and the suite of docs/TESTING.md.
func TestTheExampleOfTheDocumentationPasses(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/TESTING.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```cue\n")
	if len(blocks) != 3 {
		t.Fatalf("there are %d blocks of CUE, not 2", len(blocks)-1)
	}
	bundle, _, _ := strings.Cut(blocks[1], "```")
	tests, _, _ := strings.Cut(blocks[2], "```")
	module(t, "-- cue.mod/module.cue --\nmodule: \"shop.example\"\nlanguage: version: \"v0.17.0\"\n-- bundle.cue --\n"+bundle+"-- tests/tests.cue --\n"+tests)
	if stdout, stderr, code := test(t, "-v"); code != 0 || !strings.Contains(stdout, "5 tests, 1 invariant\n") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
}
