package lookup_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
)

// ruled is the bundle with other rules about databases.
func ruled(rules string) string {
	at := strings.Index(bundle, "		admission: validate: {")
	return bundle[:at] + "		admission: validate: {" + rules + "}\n	}\n}\n"
}

const limits = "/api/v1/namespaces/default/configmaps"

func limit(name, max, labels string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","labels":{` + labels + `}},"data":{"max":"` + max + `"}}`
}

// Params that are objects are those of the write's own tip, by a name or by a selector, and each of them counts.
func TestParamsAreStoredObjects(t *testing.T) {
	const rule = `size: {
		match: _written
		paramKind: {apiVersion: "v1", kind: "ConfigMap"}
		paramRef: {%s}
		%s
		validations: max: {expression: "object.spec.size <= int(params.data.max)", messageExpression: "'more than ' + params.metadata.name"}
	}`
	type step struct {
		method, path, body string
		code               int
		says               string
	}
	create := func(name string, size, code int, says string) step {
		return step{"POST", databases, database(name, fmt.Sprintf(`"size":%d`, size)), code, says}
	}
	for _, tc := range []struct {
		name, ref, more string
		steps           []step
	}{
		{"by name, denied without", `name: "limits", parameterNotFoundAction: "Deny"`, "", []step{
			create("a", 1, 422, "no params found for policy binding with `Deny` parameterNotFoundAction"),
			{"POST", limits, limit("limits", "10", ""), 201, ""},
			create("a", 10, 201, ""), create("b", 11, 422, "more than limits"),
			{"PATCH", limits + "/limits", `{"data":{"max":"20"}}`, 200, ""},
			create("b", 11, 201, ""),
			{"PATCH", limits + "/limits", `{"data":{"max":"x"}}`, 200, ""},
			create("c", 1, 422, "resulted in error"),
			{"POST", strings.Replace(databases, "default", "kube-system", 1), database("d", `"size":1`), 422, "no params found"},
		}},
		{"by name, skipped without", `name: "limits", parameterNotFoundAction: "Allow"`, "", []step{
			create("a", 1000, 201, ""), {"POST", limits, limit("limits", "10", ""), 201, ""}, create("b", 1000, 422, "more than limits"),
		}},
		{"in a namespace of its own", `name: "limits", namespace: "kube-system", parameterNotFoundAction: "Allow"`, "", []step{
			{"POST", limits, limit("limits", "10", ""), 201, ""}, create("a", 1000, 201, ""),
			{"POST", strings.Replace(limits, "default", "kube-system", 1), limit("limits", "10", ""), 201, ""}, create("b", 1000, 422, "more than limits"),
		}},
		{"by selector", `selector: matchLabels: limit: "yes", parameterNotFoundAction: "Deny"`, "", []step{
			{"POST", limits, limit("other", "1", ""), 201, ""}, create("a", 5, 422, "no params found"),
			{"POST", limits, limit("first", "10", `"limit":"yes"`), 201, ""}, {"POST", limits, limit("second", "20", `"limit":"yes"`), 201, ""},
			create("a", 10, 201, ""), create("b", 15, 422, "more than first"), create("b", 25, 422, "more than second"),
			{"DELETE", limits + "/first", "", 200, ""}, create("b", 15, 201, ""),
		}},
		{"ignored if it cannot be evaluated", `name: "limits", parameterNotFoundAction: "Deny"`, `failurePolicy: "Ignore"`, []step{
			create("a", 1, 201, ""), {"POST", limits, limit("limits", "x", ""), 201, ""}, create("b", 1, 201, ""),
			{"PATCH", limits + "/limits", `{"data":{"max":"3"}}`, 200, ""}, create("c", 4, 422, "more than limits"),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := planetest.Start(t, planetest.Options{Bundle: ruled(fmt.Sprintf(rule, tc.ref, tc.more))})
			for _, s := range tc.steps {
				must(t, p, s.code, s.method, s.path, s.body, s.says)
			}
		})
	}
}

// No write commits that new params refuse, at any revision after theirs, on any replica.
func TestParamsHoldFromTheirRevision(t *testing.T) {
	replicas(t, 3, func(t *testing.T, all []*planetest.Plane) {
		all[0].Activate(t, ruled(`size: {
			match: _written
			paramKind: {apiVersion: "v1", kind: "ConfigMap"}
			paramRef: {name: "limits", parameterNotFoundAction: "Deny"}
			validations: max: expression: "object.spec.size <= int(params.data.max)"
		}`))
		must(t, all[0], 201, "POST", limits, limit("limits", "10", ""))
		var writers sync.WaitGroup
		for i := range 60 {
			writers.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Microsecond)
				if a := do(all[i%3], "POST", databases, database(fmt.Sprint("d", i), `"size":5`)); a.code != 201 && a.code != 422 {
					t.Errorf("%d %s", a.code, a.body)
				}
			})
		}
		time.Sleep(9 * time.Millisecond)
		changed := must(t, all[1], 200, "PATCH", limits+"/limits", `{"data":{"max":"1"}}`)
		writers.Wait()
		revision := func(text string) int {
			var o struct {
				Metadata struct{ ResourceVersion string }
			}
			_ = json.Unmarshal([]byte(text), &o)
			n, _ := strconv.Atoi(o.Metadata.ResourceVersion)
			return n
		}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal([]byte(must(t, all[0], 200, "GET", databases, "").body), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if at := revision(string(o)); at > revision(changed.body) {
				t.Errorf("at revision %d an object was written that the params of revision %d refuse", at, revision(changed.body))
			}
		}
		if n := len(list.Items); n == 0 || n == 60 {
			t.Errorf("%d of 60 writes passed: the test asks too little", n)
		}
	})
}

// A match can leave out names, resources, versions and scopes.
func TestMatchesLeaveRequestsOut(t *testing.T) {
	const never = `validations: no: {expression: "false", message: "matched"}`
	for _, tc := range []struct {
		name, match string
		codes       []int // of creating databases a and b, and a region
	}{
		{"all", `{apiGroups: ["data.example.com"], resources: ["*"]}`, []int{422, 422, 422}},
		{"names", `{apiGroups: ["data.example.com"], resources: ["*"], resourceNames: ["a"]}`, []int{422, 201, 201}},
		{"namespaced", `{apiGroups: ["data.example.com"], resources: ["*"], scope: "Namespaced"}`, []int{422, 422, 201}},
		{"cluster", `{apiGroups: ["data.example.com"], resources: ["*"], scope: "Cluster"}`, []int{201, 201, 422}},
		{"excluded resource", `{apiGroups: ["*"], resources: ["*"], excludeResourceRules: x: {apiGroups: ["data.example.com"], resources: ["regions"]}}`, []int{422, 422, 201}},
		{"excluded name", `{apiGroups: ["*"], resources: ["*"], excludeResourceRules: x: {apiGroups: ["*"], resources: ["databases"], resourceNames: ["b"]}}`, []int{422, 201, 422}},
		{"excluded operation", `{apiGroups: ["*"], resources: ["*"], excludeResourceRules: x: {apiGroups: ["*"], resources: ["*"], operations: ["DELETE"]}}`, []int{422, 422, 422}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := planetest.Start(t, planetest.Options{Bundle: ruled("no: {match: " + tc.match + "\n" + never + "}")})
			must(t, p, tc.codes[0], "POST", databases, database("a", ""))
			must(t, p, tc.codes[1], "POST", databases, database("b", ""))
			must(t, p, tc.codes[2], "POST", regions, region("eu"))
		})
	}
}

// Audit annotations are in the event of the write, and the options of the request are in its expressions.
func TestAuditAnnotationsAreRecorded(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: ruled(`notes: {
		match: _written & {operations: ["*"]}
		validations: x: expression: "true"
		auditAnnotations: {
			size: valueExpression: "object == null ? '' : string(object.spec.size)"
			manager: valueExpression: "has(request.options.fieldManager) ? request.options.fieldManager : ''"
			kind: valueExpression: "request.options.kind"
			none: valueExpression: "null"
		}
	}
	broken: {
		match: _written & {resourceNames: ["broken"]}
		validationActions: ["Audit"]
		validations: x: expression: "true"
		auditAnnotations: x: valueExpression: "object.spec.host"
	}`)})
	must(t, p, 201, "POST", databases+"?fieldManager=ann", database("a", `"size":7`))
	must(t, p, 422, "POST", databases, database("broken", ""), "audit annotation x: ")
	must(t, p, 200, "DELETE", databases+"/a", "")
	var got []string
	batches, err := p.Log.Back(t.Context(), p.Committer.Tip().Revision(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range slices.Backward(batches) {
		for _, e := range b.Events {
			for _, a := range e.Meta.GetDecisions().GetAudit().GetAnnotations() {
				got = append(got, a.GetKey()+"="+a.GetValue())
			}
		}
	}
	want := []string{"data/validate/notes/kind=CreateOptions", "data/validate/notes/manager=ann", "data/validate/notes/size=7", "data/validate/notes/kind=DeleteOptions"}
	if !slices.Equal(got, want) {
		t.Errorf("the annotations are %q, want %q", got, want)
	}
}
