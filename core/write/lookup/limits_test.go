package lookup_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// What the rules of one write read has limits, which the user is told together with what to do. At a limit all is well.
func TestLimitsOfReads(t *testing.T) {
	numbers := "0" + strings.Join(make([]string, 100), ",0")
	repeat := func(n int, check func(int) string) (text string) {
		for i := range n {
			text += check(i) + "\n"
		}
		return text
	}
	gets := repeat(10, func(i int) string {
		return fmt.Sprintf(`validations: "v%d": expression: "[%s].all(i, !objects.maps.get('bulk', 'none').hasValue())"`, i, numbers)
	})
	const list = "objects.maps.namespace('bulk').list().size() >= 0"
	lists := repeat(10, func(i int) string {
		return fmt.Sprintf(`validations: "v%d": expression: "%s"`, i, strings.Join([]string{list, list, list, list, list}, " && "))
	})
	const maps = `objects: maps: {kind: "configmaps", version: "v1"}`
	about := func(prefix string) string {
		return `match: _written & {conditions: named: "object.metadata.name.startsWith('` + prefix + `')"}, ` + maps
	}
	p := planetest.Start(t, planetest.Options{Bundle: ruled(`
		"a-reads": {` + about("reads") + "\n" + gets + `}
		"b-reads": {` + about("reads-more") + `, validations: x: {expression: "!objects.maps.get('bulk', 'none').hasValue()"}}
		"c-reads": {` + about("reads-ignored") + `, failurePolicy: "Ignore", validations: x: {expression: "!objects.maps.get('bulk', 'none').hasValue()"}}
		"d-looks": {` + about("looks") + "\n" + lists + `}
		"e-looks": {` + about("looks") + "\n" + lists + `}
		"f-looks": {` + about("looks-more") + `, validations: x: {expression: "` + list + `"}}
		"g-lists": {` + about("lists") + `, validations: x: {expression: "` + list + `"}}
		"h-lists": {` + about("counts") + `, validations: x: {expression: "objects.maps.namespace('bulk').count() > 1000"}}
	`)})
	const bulk = "/api/v1/namespaces/bulk/configmaps"
	must(t, p, 201, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bulk"}}`)
	fill := func(i int) {
		must(t, p, 201, "POST", bulk, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m-%04d"}}`, i))
	}
	for i := range 1000 {
		fill(i)
	}
	must(t, p, 201, "POST", databases, database("reads", ""))
	must(t, p, 422, "POST", databases, database("reads-more", ""), "the rules of one write may read objects 1000 times", "data/validate/b-reads/x", "bundle.cue:")
	must(t, p, 201, "POST", databases, database("reads-ignored", ""))
	must(t, p, 201, "POST", databases, database("looks", ""))
	must(t, p, 422, "POST", databases, database("looks-more", ""), "the rules of one write may look at 100000 objects, and would look at more of configmaps: narrow the selection by labels, or by a field with an index", "data/validate/f-looks/x")
	must(t, p, 201, "POST", databases, database("lists", ""))
	must(t, p, 422, "POST", databases, database("counts", ""))
	fill(1000)
	must(t, p, 422, "POST", databases, database("lists-more", ""), "list selects more than 1000 objects: narrow it, or use count or exists", "data/validate/g-lists/x")
	must(t, p, 201, "POST", databases, database("counts", ""))
}

// mutating is the bundle with rules that change databases.
func mutating(rules string) string {
	return strings.Replace(ruled(""), "admission: validate: {}", "admission: mutate: {"+rules+"}", 1)
}

// A mutation reads other objects at the write's tip, and the committer checks what it has read: of writes at the same time no two get
// the same number.
func TestMutationsReadStoredObjects(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: mutating(`
		number: {
			order: 1, match: _written & {operations: ["CREATE"]}, objects: {databases: _databases, regions: _regions}
			mutations: host: {order: 1, patchType: "ApplyConfiguration", expression: "Object{spec: Object.spec{host: 'host-' + string(objects.databases.count())}}"}
			mutations: region: {order: 2, patchType: "JSONPatch", expression: "[JSONPatch{op: 'add', path: '/spec/region', value: objects.regions.get('north').hasValue() ? 'north' : 'nowhere'}]"}
		}`)})
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for n := range 5 {
				if a := do(p, "POST", databases, database(fmt.Sprintf("db-%d-%d", i, n), "")); a.code != 201 || !strings.Contains(a.body, `"region":"nowhere"`) {
					t.Errorf("%d %s", a.code, a.body)
				}
			}
		})
	}
	writers.Wait()
	var hosts []string
	for _, part := range strings.Split(must(t, p, 200, "GET", databases, "").body, `"host":"`)[1:] {
		host, _, _ := strings.Cut(part, `"`)
		hosts = append(hosts, host)
	}
	if slices.Sort(hosts); len(hosts) != 40 || len(slices.Compact(hosts)) != 40 {
		t.Errorf("the hosts are %q", hosts)
	}
	must(t, p, 201, "POST", regions, region("north"))
	must(t, p, 201, "POST", databases, database("last", ""), `"region":"north"`, `"host":"host-40"`)
	batches, err := p.Log.Back(t.Context(), 1<<62, 1)
	if err != nil {
		t.Fatal(err)
	}
	reads := batches[0].Events[0].Meta.GetDecisions().GetReads()
	if len(reads) != 2 || reads[0].GetResource() != "regions" || reads[0].GetFound() != 1 || reads[1].GetResource() != "databases" || reads[1].GetFound() != 40 {
		t.Errorf("the event has the reads %v", reads)
	}
	a := do(p, "POST", "/apis/policy.stele.dev/v1/explanations", `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"create","group":"data.example.com","version":"v1","resource":"databases","namespace":"default","object":`+database("x", "")+`}}`)
	if a.code != 201 || !strings.Contains(a.body, `"read":["databases.data.example.com: 41 found"]`) || !strings.Contains(a.body, `"read":["regions.data.example.com named north: 1 found"]`) {
		t.Errorf("the explanation: %d %s", a.code, a.body)
	}
}

// Params of mutations are the objects that paramRef selects, each of which changes the object; without one, parameterNotFoundAction
// decides.
func TestParamsOfMutations(t *testing.T) {
	rule := func(ref, more string) string {
		return mutating(`label: {
			order: 1, match: _written, paramKind: {apiVersion: "v1", kind: "ConfigMap"}, paramRef: {` + ref + `}` + more + `
			mutations: label: {patchType: "ApplyConfiguration", expression: "Object{metadata: Object.metadata{labels: {params.metadata.name: params.data.max}}}"}
		}`)
	}
	p := planetest.Start(t, planetest.Options{Bundle: rule(`name: "limits", parameterNotFoundAction: "Deny"`, "")})
	must(t, p, 403, "POST", databases, database("a", ""), noParams, "data/mutate/label", `"reason":"Invalid"`)
	p.Activate(t, rule(`name: "limits", parameterNotFoundAction: "Deny"`, `, failurePolicy: "Ignore"`))
	must(t, p, 201, "POST", databases, database("a", ""))
	p.Activate(t, rule(`name: "limits", parameterNotFoundAction: "Allow"`, ""))
	if a := must(t, p, 201, "POST", databases, database("b", "")); strings.Contains(a.body, `"labels"`) {
		t.Errorf("%s", a.body)
	}
	must(t, p, 201, "POST", limits, limit("limits", "10", `"limit":"yes"`))
	must(t, p, 201, "POST", databases, database("c", ""), `"labels":{"limits":"10"}`)
	must(t, p, 200, "PATCH", limits+"/limits", `{"data":{"max":"20"}}`)
	must(t, p, 200, "PATCH", databases+"/c", `{"spec":{"size":2}}`, `"labels":{"limits":"20"}`)
	must(t, p, 201, "POST", limits, limit("more", "30", `"limit":"yes"`))
	p.Activate(t, rule(`selector: matchLabels: limit: "yes", parameterNotFoundAction: "Deny"`, ""))
	must(t, p, 201, "POST", databases, database("d", ""), `"labels":{"limits":"20","more":"30"}`)
}
