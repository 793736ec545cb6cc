package lookup_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

const bundle = `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: data: {
		contact: "#data", groups: ["*"], namespaces: ["*"]
		kinds: "databases.data.example.com": {
			group: "data.example.com"
			names: {kind: "Database", plural: "databases"}
			storageVersion: "v1"
			index: [".spec.host", ".spec.region", ".spec.main"]
			versions: v1: {
				#schema: {spec?: {host?: string, region?: string, main?: bool, size: *1 | int}, status?: {seen?: int}}
				subresources: status: {}
			}
		}
		kinds: "regions.data.example.com": {
			group: "data.example.com"
			names: {kind: "Region", plural: "regions"}
			scope: "Cluster"
			storageVersion: "v1"
			versions: v1: #schema: {spec: {open: *true | bool}}
		}
		_databases: {kind: "databases.data.example.com", version: "v1"}
		_regions: {kind: "regions.data.example.com", version: "v1"}
		_written: {apiGroups: ["data.example.com"], resources: ["databases"]}
		admission: validate: {
			"unique-host": {
				match:   _written & {conditions: host: "has(object.spec) && has(object.spec.host)"}
				objects: databases: _databases
				validations: host: {
					expression:        "!objects.databases.where('spec.host', object.spec.host).others().exists()"
					messageExpression: "'the host ' + object.spec.host + ' is that of ' + objects.databases.where('spec.host', object.spec.host).others().list()[0].metadata.name"
				}
			}
			region: {
				match:   _written & {conditions: region: "has(object.spec) && has(object.spec.region)"}
				objects: regions: _regions
				variables: region: "objects.regions.get(object.spec.region)"
				validations: exists: {expression: "variables.region.hasValue()", message: "there is no such region"}
				validations: open: {expression: "!variables.region.hasValue() || variables.region.value().spec.open", message: "the region is closed"}
			}
			"region-used": {
				match: {apiGroups: ["data.example.com"], resources: ["regions"], operations: ["DELETE"]}
				objects: databases: _databases
				validations: unused: {
					expression:        "!objects.databases.where('spec.region', oldObject.metadata.name).exists()"
					messageExpression: "string(objects.databases.where('spec.region', oldObject.metadata.name).count()) + ' databases are in it'"
				}
			}
			"one-main": {
				match:   _written & {conditions: main: "object.?spec.main.orValue(false)"}
				objects: databases: _databases
				validations: main: {expression: "!objects.databases.namespace(object.metadata.namespace).where('spec.main', true).others().exists()", message: "another one is the main one", reason: "Forbidden"}
			}
			few: {
				match:   _written & {operations: ["CREATE"]}
				objects: databases: _databases
				validations: five: {expression: "objects.databases.namespace(request.namespace).others().count() < 5", message: "five are enough"}
			}
		}
	}
}
`

const (
	databases = "/apis/data.example.com/v1/namespaces/default/databases"
	regions   = "/apis/data.example.com/v1/regions"
)

type answer struct {
	code int
	body string
}

// do sends a request as the administrator.
func do(p *planetest.Plane, method, path, body string) answer {
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	q.Header.Set("Authorization", "Bearer admin-token")
	q.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		q.Header.Set("Content-Type", "application/merge-patch+json")
	}
	w := httptest.NewRecorder()
	p.Pipeline.ServeHTTP(w, q)
	return answer{w.Code, w.Body.String()}
}

func must(t *testing.T, p *planetest.Plane, code int, method, path, body string, texts ...string) answer {
	t.Helper()
	a := do(p, method, path, body)
	if a.code != code {
		t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, a.code, a.body, code)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Errorf("%s %s %s: %s lacks %q", method, path, body, a.body, text)
		}
	}
	return a
}

func database(name, spec string) string {
	return `{"apiVersion":"data.example.com/v1","kind":"Database","metadata":{"name":"` + name + `"},"spec":{` + spec + `}}`
}

func region(name string) string {
	return `{"apiVersion":"data.example.com/v1","kind":"Region","metadata":{"name":"` + name + `"}}`
}

func start(t testing.TB) *planetest.Plane {
	t.Helper()
	return planetest.Start(t, planetest.Options{Bundle: bundle})
}

// Rules see the objects that are stored, and never the old version of the object that is written by mistake.
func TestRulesReadStoredObjects(t *testing.T) {
	p := start(t)
	must(t, p, 422, "POST", databases, database("a", `"region":"eu"`), "there is no such region", "data/validate/region/exists")
	must(t, p, 201, "POST", regions, region("eu"))
	must(t, p, 201, "POST", databases, database("a", `"region":"eu","host":"a.example.com","main":true`))
	// Itself is left out: neither its host nor that it is the main one is in its way.
	must(t, p, 200, "PATCH", databases+"/a", `{"spec":{"size":2}}`)
	must(t, p, 422, "POST", databases, database("b", `"host":"a.example.com"`), "the host a.example.com is that of a")
	must(t, p, 403, "POST", databases, database("b", `"main":true`), "another one is the main one")
	must(t, p, 201, "POST", databases, database("b", `"host":"b.example.com"`))
	must(t, p, 422, "PATCH", databases+"/b", `{"spec":{"host":"a.example.com"}}`, "the host a.example.com is that of a")
	must(t, p, 422, "PATCH", databases+"/b?dryRun=All", `{"spec":{"host":"a.example.com"}}`, "the host a.example.com is that of a")
	// In another namespace there may be another main one, and no other one with the host.
	must(t, p, 422, "POST", strings.Replace(databases, "default", "kube-system", 1), database("a", `"host":"a.example.com"`), "is that of a")
	must(t, p, 201, "POST", strings.Replace(databases, "default", "kube-system", 1), database("a", `"main":true`))
	must(t, p, 422, "DELETE", regions+"/eu", "", "1 databases are in it")
	must(t, p, 422, "DELETE", regions, "", "1 databases are in it")
	must(t, p, 200, "PATCH", regions+"/eu", `{"spec":{"open":false}}`)
	must(t, p, 422, "POST", databases, database("c", `"region":"eu"`), "the region is closed")
	must(t, p, 200, "DELETE", databases+"/a", "")
	must(t, p, 200, "DELETE", regions+"/eu", "")
	must(t, p, 201, "POST", databases, database("c", `"host":"a.example.com","main":true`))
	for i := range 3 {
		must(t, p, 201, "POST", databases, database(fmt.Sprint("d", i), ""))
	}
	must(t, p, 422, "POST", databases, database("d3", ""), "five are enough")
}

// An explanation says what each rule has read, and how many objects it found.
func TestExplanationsSayWhatRulesRead(t *testing.T) {
	p := start(t)
	must(t, p, 201, "POST", databases, database("a", `"host":"a.example.com"`))
	read := explained(t, p, database("b", `"host":"a.example.com"`))
	for rule, want := range map[string]string{
		"data/validate/unique-host/host": `does not hold: databases.data.example.com by spec.host="a.example.com", but not the object of the request: 1 found`,
		"data/validate/few/five":         `holds: databases.data.example.com in namespace default, but not the object of the request: 1 found`,
	} {
		if read[rule] != want {
			t.Errorf("%s: %q, want %q", rule, read[rule], want)
		}
	}
}

// An explanation names the rules that are skipped because they have no params.
func TestExplanationsNameRulesWithoutParams(t *testing.T) {
	const rules = `
	size: {match: _written, paramKind: {apiVersion: "v1", kind: "ConfigMap"}, paramRef: {name: "limits", parameterNotFoundAction: "Allow"}, validations: max: expression: "object.spec.size <= int(params.data.max)"}
	others: {match: _written, paramKind: {apiVersion: "v1", kind: "ConfigMap"}, paramRef: {selector: matchLabels: limit: "yes", parameterNotFoundAction: "Allow"}, validations: max: expression: "object.spec.size <= int(params.data.max)"}`
	read := explained(t, planetest.Start(t, planetest.Options{Bundle: ruled(rules)}), database("b", `"size":1`))
	for rule, want := range map[string]string{
		"data/validate/size":   `has no params, and is skipped: configmaps in namespace default, named limits: 0 found`,
		"data/validate/others": `has no params, and is skipped: configmaps in namespace default, by labels "limit=yes": 0 found`,
	} {
		if read[rule] != want {
			t.Errorf("%s: %q, want %q", rule, read[rule], want)
		}
	}
}

// explained returns the verdict of each rule on the create of a database, and what the rule has read.
func explained(t *testing.T, p *planetest.Plane, object string) map[string]string {
	t.Helper()
	a := must(t, p, 201, "POST", "/apis/policy.stele.dev/v1/explanations",
		`{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"create","group":"data.example.com","version":"v1","resource":"databases","namespace":"default","object":`+object+`}}`)
	var got struct {
		Status struct {
			Revision uint64
			Stages   []struct {
				Name       string
				Considered []struct {
					Rule, Verdict string
					Read          []string
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatal(err)
	}
	read := map[string]string{}
	for _, s := range got.Status.Stages {
		for _, c := range s.Considered {
			read[c.Rule] += c.Verdict + ": " + strings.Join(c.Read, "; ")
		}
	}
	if got.Status.Revision == 0 {
		t.Error("it is not said at which revision they were read")
	}
	return read
}

// replicas starts control planes on one log, each at its distance.
func replicas(t *testing.T, n int, test func(t *testing.T, all []*planetest.Plane)) {
	planetest.Compile(t, bundle) // outside of the bubble, which shares it
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var all []*planetest.Plane
		for i := range n {
			delay := time.Duration(i+1) * time.Millisecond
			p, err := planetest.Open(t.Context(), planetest.Options{Backend: store.Open(func(memlog.Op) memlog.Fault { return memlog.Fault{Request: delay, Answer: delay} })})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				p.Bootstrap(t, bundle)
			}
			all = append(all, p)
		}
		defer func() {
			for _, p := range all {
				p.Stop()
			}
			time.Sleep(time.Minute)
		}()
		test(t, all)
	})
}

// Of writes that exclude each other one passes, on whichever replica they are.
func TestOfRacingWritesThatExcludeEachOtherOnePasses(t *testing.T) {
	replicas(t, 3, func(t *testing.T, all []*planetest.Plane) {
		for round := range 4 {
			var mu sync.Mutex
			codes := map[int]int{}
			var writers sync.WaitGroup
			for i := range 24 {
				writers.Go(func() {
					a := do(all[i%3], "POST", strings.Replace(databases, "default", []string{"default", "kube-system"}[round%2], 1), database(fmt.Sprintf("r%d-%d", round, i), fmt.Sprintf(`"host":"h%d"`, round)))
					mu.Lock()
					defer mu.Unlock()
					codes[a.code]++
				})
			}
			writers.Wait()
			if codes[201] != 1 || codes[422] != 23 {
				t.Errorf("round %d: %v, want one 201 and 23 422", round, codes)
			}
		}
	})
}

// Writes that depend on the same selection, and do not exclude each other, all pass: none is answered with a conflict.
func TestManyWritesThatDependOnOneSelection(t *testing.T) {
	const writers = 64
	for _, n := range []int{1, 3} {
		replicas(t, n, func(t *testing.T, all []*planetest.Plane) {
			// The rule counts the objects of the namespace: each create changes what all others have read.
			counting := strings.Replace(bundle, "count() < 5", fmt.Sprintf("count() < %d", writers-4), 1)
			all[0].Activate(t, counting)
			var mu sync.Mutex
			codes := map[int]int{}
			var done sync.WaitGroup
			begun := time.Now()
			for i := range writers {
				done.Go(func() {
					a := do(all[i%n], "POST", databases, database(fmt.Sprintf("w%d", i), ""))
					mu.Lock()
					defer mu.Unlock()
					if codes[a.code]++; a.code != 201 && a.code != 422 {
						t.Logf("%s", a.body)
					}
				})
			}
			done.Wait()
			t.Logf("%d replicas: %v after %v", n, codes, time.Since(begun))
			if codes[201] != writers-4 || codes[422] != 4 {
				t.Errorf("%d replicas: %v, want %d 201 and 4 422", n, codes, writers-4)
			}
		})
	}
}
