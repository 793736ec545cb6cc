package plans_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy/plan"
)

// bundle is the policy of these tests.
const bundle = `package test

import "stele.dev/policy"

#Database: {
	spec!: {
		storageGiB: int & >=1 & <=8192 | *20
		tier: *"dev" | "standard" | "critical"
		owner!: =~"^[a-z.]+@corp\\.example$"
		pool: max: int & >=1 & <=1000 | *10
		backup: keepDays: int & >=1 | *7
		password?: string @stele(sensitive)
	}
	status?: {phase?: string}
}
#Pipeline: spec!: steps: int & >=1 & <=50 | *1

bundle: policy.#Bundle & {
	cluster: "test"
	teams: data: {
		contact: "#data", groups: ["*"], namespaces: ["*"]
		kinds: "databases.data.corp.example": {
			group: "data.corp.example"
			names: {kind: "Database", plural: "databases"}
			storageVersion: "v1"
			versions: v1: {
				#schema: #Database
				subresources: status: {}
				validations: grow: {path: "spec.storageGiB", rule: "self >= oldSelf", message: "a volume can only grow"}
			}
		}
		kinds: "pipelines.data.corp.example": {
			group: "data.corp.example"
			names: {kind: "Pipeline", plural: "pipelines"}
			storageVersion: "v1"
			versions: v1: #schema: #Pipeline
		}
		admission: validate: limit: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE", "UPDATE"]}
			params: maxGiB: 500
			validations: max: {expression: "object.spec.storageGiB <= params.maxGiB", message: "too large"}
		}
		rbac: {
			clusterRoles: databases: rules: r: {apiGroups: ["data.corp.example"], resources: ["databases", "databases/status"], verbs: ["*"]}
			clusterRoles: "pipelines": rules: r: {apiGroups: ["data.corp.example"], resources: ["pipelines"], verbs: ["*"]}
			bindings: dana: {clusterRole: "databases", subjects: [{user: "dana"}], namespaces: ["*"]}
			bindings: della: {clusterRole: "pipelines", subjects: [{user: "della"}], namespaces: ["*"]}
			clusterRoles: "databases-self": rules: r: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["create", "update", "patch"]}
			bindings: self: {clusterRole: "databases-self", subjects: [{group: "developers"}], namespaces: ["shared"], when: "object.spec.tier == 'dev'"}
			bindings: planner: {clusterRole: "policy:planner", subjects: [{user: "planner"}, {user: "pia"}, {user: "lisa"}], namespaces: ["*"]}
			clusterRoles: "lists-pipelines": rules: r: {apiGroups: ["data.corp.example"], resources: ["pipelines"], verbs: ["list"]}
			bindings: lisa: {clusterRole: "lists-pipelines", subjects: [{user: "lisa"}], namespaces: ["*"]}
			bindings: pia: {clusterRole: "pipelines", subjects: [{user: "pia"}], namespaces: ["*"]}
			bindings: lists: {clusterRole: "view", subjects: [{user: "dana"}], namespaces: ["*"]}
		}
	}
}
`

// changed returns the bundle with replacements, each of which must apply.
func changed(t testing.TB, pairs ...string) string {
	t.Helper()
	text := bundle
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the bundle has no %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

type server struct {
	*planetest.Plane
}

func start(t testing.TB) server {
	t.Helper()
	return server{planetest.Start(t, planetest.Options{Bundle: bundle})}
}

// client sends requests as a user.
func (s server) client(t testing.TB, user string, groups ...string) *rest.RESTClient {
	t.Helper()
	c, err := rest.UnversionedRESTClientFor(config(s.Client(user, append(groups, "system:authenticated")...)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func config(c *rest.Config) *rest.Config {
	c.QPS = -1
	c.NegotiatedSerializer = plainSerializer
	return c
}

// send sends a request, and returns the answer.
func (s server) send(t testing.TB, user, verb, path, body string) ([]byte, error) {
	t.Helper()
	groups := []string{}
	if user == "admin" {
		groups = []string{"system:masters"}
	}
	if user == "dev" {
		groups = []string{"developers"}
	}
	c := s.client(t, user, groups...)
	var r *rest.Request
	switch verb {
	case "POST":
		r = c.Post()
	case "PUT":
		r = c.Put()
	case "GET":
		r = c.Get()
	case "DELETE":
		r = c.Delete()
	case "PATCH":
		r = c.Patch(types.MergePatchType)
	case "APPLY":
		r = c.Patch(types.ApplyYAMLPatchType).Param("fieldManager", "test")
	}
	r = r.RequestURI(path).MaxRetries(0)
	if body != "" {
		r = r.Body([]byte(body))
		if verb != "PATCH" && verb != "APPLY" {
			r = r.SetHeader("Content-Type", "application/json")
		}
	}
	return r.Do(t.Context()).Raw()
}

// must sends a request that must succeed.
func (s server) must(t testing.TB, user, verb, path, body string) []byte {
	t.Helper()
	answer, err := s.send(t, user, verb, path, body)
	if err != nil {
		t.Fatalf("%s %s %s: %v\n%s", user, verb, path, err, answer)
	}
	return answer
}

// refused sends a request that must be refused with a code.
func (s server) refused(t testing.TB, code int32, user, verb, path, body string) string {
	t.Helper()
	answer, err := s.send(t, user, verb, path, body)
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != code {
		t.Fatalf("%s %s %s: want %d, got %v\n%s", user, verb, path, code, err, answer)
	}
	return string(answer)
}

const (
	databases = "/apis/data.corp.example/v1/namespaces/shop/databases"
	pipelines = "/apis/data.corp.example/v1/namespaces/shop/pipelines"
	plansPath = "/apis/policy.stele.dev/v1/plans"
)

func database(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":%q},"spec":{"owner":"dana@corp.example"%s}}`, name, spec)
}

// request returns a plan of a bundle.
func request(text string, spec map[string]any) string {
	all := map[string]any{"package": ".", "files": files(text)}
	for name, value := range spec {
		all[name] = value
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "policy.stele.dev/v1", "kind": "Plan", "spec": all})
	if err != nil {
		panic(err)
	}
	return string(body)
}

func files(text string) []map[string]string {
	return []map[string]string{
		{"path": "bundle.cue", "data": text},
		{"path": "cue.mod/module.cue", "data": "module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n"},
	}
}

// plan asks for a plan.
func (s server) plan(t testing.TB, user, text string, spec map[string]any) *plan.Plan {
	t.Helper()
	var answer plans.Request
	if err := json.Unmarshal(s.must(t, user, "POST", plansPath, request(text, spec)), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status.Plan == nil {
		t.Fatal("the answer has no plan")
	}
	return answer.Status.Plan
}
