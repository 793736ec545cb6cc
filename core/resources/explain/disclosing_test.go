package explain_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane/planetest"
)

// telling is a policy whose rules quote objects wherever they can, and users who may read all records.
const telling = `package test

import "stele.dev/policy"

#Vault: {
	spec!: {
		size: int & >=1 & <=10 | *1
		token?: string @stele(sensitive)
		keys?: {[string]: string}
	}
}

bundle: policy.#Bundle & {
	cluster: "test"
	audit: rules: all: {order: 1, level: "RequestResponse", apiGroups: ["corp.example"], resources: ["*"]}
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "vaults.corp.example": {
			group: "corp.example"
			names: {kind: "Vault", plural: "vaults"}
			storageVersion: "v1"
			versions: v1: {
				#schema: #Vault
				validations: odd: {path: "spec", rule: "self.size != 9", messageExpression: "'schema ' + (has(self.token) ? self.token : '')"}
			}
		}
		admission: {
			mutate: key: {
				match: {apiGroups: ["corp.example"], resources: ["vaults"]}
				order: 1
				mutations: copied: {patchType: "JSONPatch", expression: "has(object.spec.token) ? [JSONPatch{op: 'add', path: '/metadata/annotations', value: {object.spec.token: 'x'}}] : []"}
			}
			validate: {
				warns: {
					match: {apiGroups: ["corp.example"], resources: ["vaults"]}
					validationActions: ["Warn", "Audit"]
					validations: x: {expression: "!has(object.spec.token)", messageExpression: "'warning ' + object.spec.token"}
					auditAnnotations: said: valueExpression: "has(object.spec.token) ? 'annotation ' + object.spec.token : ''"
				}
				denies: {
					match: {apiGroups: ["corp.example"], resources: ["vaults"]}
					validations: x: {expression: "object.spec.size != 7", messageExpression: "'denial ' + object.spec.token"}
				}
			}
		}
		rbac: {
			clusterRoles: records: rules: {
				log: {apiGroups: ["log.stele.dev"], resources: ["decisions", "changes"], verbs: ["get", "list", "watch"]}
				policy: {apiGroups: ["policy.stele.dev"], resources: ["explanations", "shadows", "plans"], verbs: ["get", "list", "create"]}
			}
			clusterRoles: vaults: rules: v: {apiGroups: ["corp.example"], resources: ["vaults"], verbs: ["get", "list", "watch", "history"]}
			clusterRoles: patches: rules: {
				v: {apiGroups: ["corp.example"], resources: ["vaults"], verbs: ["patch"]}
				e: {apiGroups: ["policy.stele.dev"], resources: ["explanations"], verbs: ["create"]}
			}
			bindings: patches: {clusterRole: "patches", subjects: [{user: "patty"}], namespaces: ["*"]}
			bindings: records: {clusterRole: "records", subjects: [{user: "auditor"}, {user: "keeper"}], namespaces: ["*"]}
			bindings: vaults: {clusterRole: "vaults", subjects: [{user: "keeper"}], namespaces: ["*"]}
		}
	}
}
`

// asking sends requests as users.
type asking struct {
	*planetest.Plane
	t *testing.T
}

func (a asking) send(as, verb, path, body, id string) (string, error) {
	a.t.Helper()
	groups := []string{"system:authenticated"}
	if as == "admin" {
		groups = append(groups, "system:masters")
	}
	config := a.Client(as, groups...)
	config.QPS, config.NegotiatedSerializer, config.WarningHandler = -1, scheme.Codecs.WithoutConversion(), rest.NoWarnings{}
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		a.t.Fatal(err)
	}
	r := c.Verb(verb)
	if verb == "PATCH" {
		r = c.Patch(types.MergePatchType)
	}
	r = r.RequestURI(path).MaxRetries(0)
	if id != "" {
		r = r.SetHeader("Audit-ID", id)
	}
	if body != "" {
		r = r.Body([]byte(body))
		if verb != "PATCH" {
			r = r.SetHeader("Content-Type", "application/json")
		}
	}
	text, err := r.Do(a.t.Context()).Raw()
	return string(text), err
}

// Whoever may read records and not the objects that they are about is shown by no API what is in these: not by messages, findings, annotations,
// paths or bodies. Whoever may read the objects is.
func TestRecordsQuoteNoObjectsToThoseWhoMayNotReadThem(t *testing.T) {
	a := asking{planetest.Start(t, planetest.Options{Bundle: telling}), t}
	const vaults, secret = "/apis/corp.example/v1/namespaces/default/vaults", "hunter2"
	const apis = "/apis/policy.stele.dev/v1/"
	files, _ := json.Marshal([]map[string]string{
		{"path": "bundle.cue", "data": strings.Replace(telling, "size != 7", "size > 100", 1)}, {"path": "cue.mod/module.cue", "data": "module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n"},
	})
	if text, err := a.send("auditor", "POST", apis+"shadows", `{"apiVersion":"policy.stele.dev/v1","kind":"Shadow","spec":{"package":".","files":`+string(files)+`}}`, ""); err != nil {
		t.Fatal(err, text)
	}
	vault := func(name, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"corp.example/v1","kind":"Vault","metadata":{"name":%q},"spec":{"token":%q%s}}`, name, secret, spec)
	}
	requests := []struct {
		id, verb, path, body string
		refused              bool
	}{
		{"written", "POST", vaults, vault("a", ""), false},
		{"dry-run", "POST", vaults + "?dryRun=All", vault("b", ""), false},
		{"unchanged", "PATCH", vaults + "/a", `{"spec":{"size":1}}`, false},
		{"schema", "POST", vaults, vault("b", `,"size":11`), true},
		{"rule", "POST", vaults, vault("b", `,"size":9`), true},
		{"keys", "POST", vaults, vault("b", `,"keys":{"`+secret+`":1}`), true},
		{"decode", "POST", vaults, `{"` + secret, true},
		{"validation", "POST", vaults, vault("b", `,"size":7`), true},
		{"exists", "POST", vaults, vault("a", ""), true},
		{"conflict", "PUT", vaults + "/a", strings.Replace(vault("a", ""), `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1), true},
		{"deleted", "DELETE", vaults + "/a", "", false},
	}
	for _, x := range requests {
		if text, err := a.send("admin", x.verb, x.path, x.body, x.id); (err != nil) != x.refused {
			t.Fatalf("%s: %v %s", x.id, err, text)
		}
	}
	paths := map[string]string{
		"decisions": "/apis/log.stele.dev/v1/decisions?bodies=true", "changes": "/apis/log.stele.dev/v1/changes?fieldSelector=since%3D1", "shadow": apis + "shadows/proposed",
	}
	for _, x := range requests {
		paths["decision "+x.id], paths["explanation "+x.id] = "/apis/log.stele.dev/v1/decisions/"+x.id, apis+"explanations/"+x.id
	}
	quoted := map[string]bool{}
	for name, path := range paths {
		text, err := a.send("auditor", "GET", path, "", "")
		if err != nil {
			t.Fatalf("%s: %v %s", name, err, text)
		}
		if strings.Contains(text, secret) || strings.Contains(text, "11") && strings.Contains(text, "Invalid value: 11") {
			t.Errorf("%s shows what is in a vault: %s", name, text)
		}
		if !strings.Contains(text, "vaults") && name != "changes" && name != "shadow" {
			t.Errorf("%s hides the record: %s", name, text)
		}
		if text, err = a.send("keeper", "GET", path, "", ""); err != nil {
			t.Fatalf("%s: %v %s", name, err, text)
		}
		quoted[name] = strings.Contains(text, secret)
		for _, part := range []string{"annotation ", "warning ", "denial ", "schema ", "/metadata/annotations"} {
			if name == "decisions" && !strings.Contains(text, part) {
				t.Errorf("no record has %q: the test asks too little", part)
			}
		}
	}
	for _, name := range []string{"decisions", "changes", "decision written", "decision dry-run", "decision validation", "decision rule", "explanation written", "explanation validation", "explanation rule"} {
		if !quoted[name] {
			t.Errorf("%s shows nothing to whoever may read vaults: the test asks too little", name)
		}
	}
	for _, span := range []string{"0", "7d"} {
		body := `{"apiVersion":"policy.stele.dev/v1","kind":"Plan","spec":{"package":".","replay":"` + span + `","files":` + string(files) + `}}`
		for _, as := range []string{"auditor", "keeper"} {
			text, err := a.send(as, "POST", apis+"plans", body, "")
			if err != nil || strings.Contains(text, secret) {
				t.Errorf("a plan of %s: %v %s", as, err, text)
			}
			if flips := strings.Contains(text, `"refused"`); flips != (as == "keeper" && span != "0") {
				t.Errorf("a plan of %s decides again: %v: %s", as, flips, text)
			}
		}
	}
}

// A client that sends the audit ID of another request does not hide that request.
func TestAnAuditIDNamesTheFirstRequest(t *testing.T) {
	a := asking{planetest.Start(t, planetest.Options{Bundle: telling}), t}
	const vaults = "/apis/corp.example/v1/namespaces/default/vaults"
	vault := func(size int) string {
		return fmt.Sprintf(`{"apiVersion":"corp.example/v1","kind":"Vault","metadata":{"generateName":"v-"},"spec":{"size":%d}}`, size)
	}
	for _, id := range []string{"written", "refused"} {
		size := map[string]int{"written": 1, "refused": 11}[id]
		if text, err := a.send("admin", "POST", vaults, vault(size), id); (err != nil) != (id == "refused") {
			t.Fatal(err, text)
		}
		// A refusal and a read of the same name follow, and for a refusal even a write.
		_, _ = a.send("keeper", "POST", vaults, vault(1), id)
		if text, err := a.send("keeper", "GET", vaults, "", id); err != nil {
			t.Fatal(err, text)
		}
		if id == "refused" {
			if text, err := a.send("admin", "POST", vaults, vault(2), id); err != nil {
				t.Fatal(err, text)
			}
		}
		for _, path := range []string{"/apis/policy.stele.dev/v1/explanations/", "/apis/log.stele.dev/v1/decisions/"} {
			text, err := a.send("admin", "GET", path+id, "", "")
			if err != nil || !strings.Contains(text, `"user":"admin"`) || strings.Contains(text, `"user":"keeper"`) || strings.Contains(text, "Invalid value: 11") != (id == "refused") {
				t.Errorf("%s%s: %v %s", path, id, err, text)
			}
		}
		text, err := a.send("admin", "GET", "/apis/log.stele.dev/v1/decisions?fieldSelector=request.auditID%3D"+id, "", "")
		if n := strings.Count(text, `"auditID":"`+id+`"`); err != nil || n != map[string]int{"written": 3, "refused": 4}[id] {
			t.Errorf("%s: %v, %d decisions are listed: %s", id, err, n, text)
		}
	}
}

// Who may patch an object with secrets, and not get it, is not told by an explanation what mutations made of it.
func TestExplanationsOfPatchesTellNoSecrets(t *testing.T) {
	a := asking{planetest.Start(t, planetest.Options{Bundle: telling}), t}
	const vaults = "/apis/corp.example/v1/namespaces/default/vaults"
	if text, err := a.send("admin", "POST", vaults, `{"apiVersion":"corp.example/v1","kind":"Vault","metadata":{"name":"a"},"spec":{"token":"hunter2"}}`, ""); err != nil {
		t.Fatal(err, text)
	}
	const ask = `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"patch","group":"corp.example","version":"v1","resource":"vaults","namespace":"default","name":"a","object":{"metadata":{"annotations":null}}}}`
	for as, told := range map[string]bool{"patty": false, "admin": true} {
		text, err := a.send(as, "POST", "/apis/policy.stele.dev/v1/explanations", ask, "")
		if err != nil || strings.Contains(text, "/metadata/annotations") != told || !strings.Contains(text, "changes ") {
			t.Errorf("%s: %v %s", as, err, text)
		}
	}
}
