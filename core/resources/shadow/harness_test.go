package shadow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/shadow"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy/plan"
)

// bundle is the policy in force.
const bundle = `package test

import "stele.dev/policy"

#Database: {
	spec!: {
		storageGiB: int & >=1 & <=8192 | *20
		tier: *"dev" | "critical"
		password?: string
	}
}

bundle: policy.#Bundle & {
	cluster: "test"
	teams: data: {
		contact: "#data", groups: ["*"], namespaces: ["*"]
		kinds: "databases.data.corp.example": {
			group: "data.corp.example"
			names: {kind: "Database", plural: "databases"}
			storageVersion: "v1"
			versions: v1: #schema: #Database
		}
		admission: validate: limit: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE", "UPDATE"]}
			params: maxGiB: 500
			validations: max: {expression: "object.spec.storageGiB <= params.maxGiB", message: "too large"}
		}
		rbac: {
			clusterRoles: databases: rules: r: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["*"]}
			clusterRoles: shadowing: rules: r: {apiGroups: ["policy.stele.dev"], resources: ["shadows"], verbs: ["create", "get", "list", "delete"]}
			clusterRoles: watching: rules: r: {apiGroups: ["policy.stele.dev"], resources: ["shadows"], verbs: ["get"]}
			bindings: dana: {clusterRole: "databases", subjects: [{user: "dana"}], namespaces: ["*"]}
			clusterRoles: "databases-dev": rules: r: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["create", "update", "patch"]}
			bindings: dev: {clusterRole: "databases-dev", subjects: [{user: "dev"}], namespaces: ["*"], when: "object.spec.tier == 'dev'"}
			bindings: sam: {clusterRole: "shadowing", subjects: [{user: "sam"}], namespaces: ["*"]}
			bindings: wendy: {clusterRole: "watching", subjects: [{user: "wendy"}, {user: "dana"}], namespaces: ["*"]}
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
	clients map[string]*rest.RESTClient
}

func start(t testing.TB) server {
	t.Helper()
	s := server{planetest.Start(t, planetest.Options{Bundle: bundle}), map[string]*rest.RESTClient{}}
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	return s
}

// send sends a request as a user, and returns the answer.
func (s server) send(t testing.TB, as, verb, path, body string) ([]byte, error) {
	t.Helper()
	c := s.clients[as]
	if c == nil {
		groups := []string{"system:authenticated"}
		if as == "admin" {
			groups = append(groups, "system:masters")
		}
		config := s.Client(as, groups...)
		config.WarningHandler = rest.NoWarnings{}
		config.QPS, config.NegotiatedSerializer = -1, scheme.Codecs.WithoutConversion()
		var err error
		if c, err = rest.UnversionedRESTClientFor(config); err != nil {
			t.Fatal(err)
		}
		s.clients[as] = c
	}
	r := c.Verb(verb)
	if verb == "PATCH" {
		r = c.Patch(types.MergePatchType)
	}
	r = r.RequestURI(path).MaxRetries(0)
	if body != "" {
		r = r.Body([]byte(body))
		if verb != "PATCH" {
			r = r.SetHeader("Content-Type", "application/json")
		}
	}
	return r.Do(t.Context()).Raw()
}

// must sends a request that must succeed.
func (s server) must(t testing.TB, as, verb, path, body string) []byte {
	t.Helper()
	answer, err := s.send(t, as, verb, path, body)
	if err != nil {
		t.Fatalf("%s %s %s: %v\n%s", as, verb, path, err, answer)
	}
	return answer
}

// refused sends a request that must be refused with a code.
func (s server) refused(t testing.TB, code int32, as, verb, path, body string) string {
	t.Helper()
	answer, err := s.send(t, as, verb, path, body)
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != code {
		t.Fatalf("%s %s %s: want %d, got %v\n%s", as, verb, path, code, err, answer)
	}
	return string(answer)
}

const (
	databases   = "/apis/data.corp.example/v1/namespaces/shop/databases"
	shadowsPath = "/apis/policy.stele.dev/v1/shadows"
	shadowPath  = shadowsPath + "/proposed"
)

func database(name string, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":%q},"spec":{%s}}`, name, spec)
}

// proposal returns the body that starts a shadow.
func proposal(text string) string {
	body, err := json.Marshal(map[string]any{"apiVersion": "policy.stele.dev/v1", "kind": "Shadow", "spec": map[string]any{
		"package": ".", "commit": "0123abc", "files": []map[string]string{
			{"path": "bundle.cue", "data": text},
			{"path": "cue.mod/module.cue", "data": "module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n"},
		},
	}})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// begin starts a shadow.
func (s server) begin(t testing.TB, text string) *shadow.Shadow {
	t.Helper()
	return read(t, s.must(t, "sam", "POST", shadowsPath, proposal(text)))
}

// show reads the shadow.
func (s server) show(t testing.TB, as string) *shadow.Shadow {
	t.Helper()
	return read(t, s.must(t, as, "GET", shadowPath, ""))
}

func read(t testing.TB, text []byte) *shadow.Shadow {
	t.Helper()
	x := &shadow.Shadow{}
	if err := json.Unmarshal(text, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// lines are differences in short.
func lines(all []plan.Flip) string {
	var b strings.Builder
	for _, f := range all {
		word := "allows"
		if f.Refused {
			word = "refuses"
		}
		line := ""
		if f.Source != "" {
			line = " with a line"
		}
		fmt.Fprintf(&b, "%s %dx %s %s %s: %s %s%s%s\n", word, f.Count, f.User, f.Verb, f.Resource, f.Stage, f.Rule, f.Path, line)
	}
	return b.String()
}
