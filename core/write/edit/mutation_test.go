package edit_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// mutated is the bundle with rules that change objects.
func mutated(rules string) string {
	return strings.NewReplacer(
		"ports?: [...{name!: string, port!: int & >0}]", `ports?: [...{name!: string, port!: int & >0, protocol: *"TCP" | string}] @k8s(listType=map,listMapKeys=name)
			args?: [...string]`,
		"				subresources: status: {}", `				subresources: {status: {}, scale: {specReplicasPath: ".spec.size", statusReplicasPath: ".status.replicas"}}`,
		"status?: {ready?: bool, note: *\"none\" | string}", "status?: {ready?: bool, replicas?: int, note: *\"none\" | string}",
		"		rbac: {", rules+"\n\t\trbac: {").Replace(planetest.Bundle)
}

const ofWidgets = `match: {apiGroups: ["example.com"], resources: ["widgets"]}`

// rule returns a rule with one change of widgets, on line 22 of a bundle that has no other.
func rule(name string, order int, patchType, expression, more string) string {
	return fmt.Sprintf("admission: mutate: %q: {order: %d, match: {apiGroups: [\"example.com\"], resources: [\"widgets\"]}, mutations: x: {patchType: %q, expression: %q}, %s}\n", name, order, patchType, expression, more)
}

func newMutatedPlane(t testing.TB, rules string) *planetest.Replica {
	t.Helper()
	var store memlog.Store
	r := planetest.StartReplica(t, store.Open(nil), 0)
	r.Bootstrap(t, mutated(rules))
	return r
}

func mutationsOf(e *eventlog.Event) (list []string) {
	for _, m := range e.Meta.GetDecisions().GetMutations() {
		text := m.Rule + " " + strings.Join(m.Paths, ",")
		if m.Reinvoked {
			text += " again"
		}
		list = append(list, text)
	}
	return list
}

// Rules change what is stored, in their order. Between them defaults are filled in. The event says what each changed, and
// what the client asked for.
func TestMutationsChangeObjectsInTheirOrder(t *testing.T) {
	p := newMutatedPlane(t, `admission: mutate: {
		second: {order: 20, `+ofWidgets+`
			mutations: double: {patchType: "JSONPatch", expression: "[JSONPatch{op: 'replace', path: '/spec/size', value: object.spec.size * 2}]"}
		}
		first: {order: 10, `+ofWidgets+`
			params: team: string | *"core"
			variables: next: "object.spec.size + 1"
			mutations: {
				more: {order: 1, patchType: "ApplyConfiguration", expression: """
					Object{
						metadata: Object.metadata{labels: {"team": params.team}},
						spec: Object.spec{size: variables.next, ports: [Object.spec.ports{name: "http", port: 80}]},
					}
					"""}
				noted: {order: 2, patchType: "JSONPatch", expression: """
					[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("x/protocol"), value: object.spec.ports[0].protocol}]
					"""}
			}
		}
	}`)
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 3))
	want := map[string]any{"size": 8.0, "color": "blue", "ports": []any{map[string]any{"name": "http", "port": 80.0, "protocol": "TCP"}}}
	if got := a.Field("spec"); !reflect.DeepEqual(got, any(want)) {
		t.Errorf("the spec is %v, want %v", got, want)
	}
	if got, want := a.Field("metadata", "labels"), map[string]any{"team": "core", "x/protocol": "TCP"}; !reflect.DeepEqual(got, any(want)) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
	e := p.LastEvent(t)
	recorded := []string{
		"t/mutate/first/more /metadata/labels/team,/spec/ports/0/name,/spec/ports/0/port,/spec/size",
		"t/mutate/first/noted /metadata/labels/x~1protocol", "t/mutate/second/double /spec/size",
	}
	if got := mutationsOf(e); !slices.Equal(got, recorded) {
		t.Errorf("the event has the mutations %q, want %q", got, recorded)
	}
	if source := e.Meta.Decisions.Mutations[0].Source; !strings.HasPrefix(source, "bundle.cue:") {
		t.Errorf("a mutation is at %q", source)
	}
	if got := string(e.Content(logpb.Role_ROLE_REQUEST)); got != planetest.Widget("a", 3) {
		t.Errorf("the event has the request %s", got)
	}
	// A write that leaves the object as it would be made is none.
	before := p.Committer.Tip().Revision()
	a = p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":3}}`, "Content-Type", "application/merge-patch+json")
	if a.Field("spec", "size") != 8.0 || p.Committer.Tip().Revision() != before {
		t.Errorf("a patch to the size that the rules make of it: %v at revision %d, was %d", a, p.Committer.Tip().Revision(), before)
	}
}

func TestMutationsSelectWhatTheyAreAbout(t *testing.T) {
	set := func(label string) string {
		return `Object{metadata: Object.metadata{labels: {"` + label + `": "yes"}}}`
	}
	p := newMutatedPlane(t, `admission: mutate: {
		labelled: {order: 1, match: {apiGroups: ["example.com"], resources: ["widgets"], objectSelector: matchLabels: a: "b"}, mutations: x: {patchType: "ApplyConfiguration", expression: #"`+set("labelled")+`"#}}
		now: {order: 2, match: {apiGroups: ["example.com"], resources: ["widgets"], objectSelector: matchLabels: labelled: "yes"}, mutations: x: {patchType: "ApplyConfiguration", expression: #"`+set("now")+`"#}}
		space: {order: 3, match: {apiGroups: ["example.com"], resources: ["widgets"], namespaceSelector: matchLabels: n: "x"}, mutations: x: {patchType: "ApplyConfiguration", expression: #"`+set("space")+`"#}}
		big: {order: 4, match: {apiGroups: ["example.com"], resources: ["widgets"], conditions: big: "object.spec.size > 10"}, mutations: x: {patchType: "ApplyConfiguration", expression: #"`+set("big")+`"#}}
		updated: {order: 5, match: {apiGroups: ["example.com"], resources: ["widgets"], operations: ["UPDATE"]}, mutations: x: {patchType: "ApplyConfiguration", expression: #"`+set("updated")+`"#}}
		mine: {order: 6, match: {apiGroups: ["example.com"], resources: ["widgets"], conditions: mine: "request.userInfo.username == 'reader'"}, mutations: x: {patchType: "ApplyConfiguration", expression: #"`+set("mine")+`"#}}
	}`)
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"n","labels":{"n":"x"}}}`)
	labels := func(a planetest.Answer) (list []string) {
		m, _ := a.Field("metadata", "labels").(map[string]any)
		for name := range m {
			list = append(list, name)
		}
		slices.Sort(list)
		return list
	}
	for _, tc := range []struct {
		method, path, body string
		want               string
	}{
		{"POST", planetest.WidgetsPath, planetest.Widget("a", 3), ""},
		{"POST", planetest.WidgetsPath, `{"metadata":{"name":"b","labels":{"a":"b"}},"spec":{"size":3}}`, "a labelled now"},
		{"POST", "/apis/example.com/v1/namespaces/n/widgets", planetest.Widget("c", 3), "space"},
		{"POST", planetest.WidgetsPath, planetest.Widget("d", 11), "big"},
		{"PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":11}}`, "big updated"},
	} {
		code, header := 201, []string{}
		if tc.method == "PATCH" {
			code, header = 200, []string{"Content-Type", "application/merge-patch+json"}
		}
		if got := strings.Join(labels(p.Must(t, code, tc.method, tc.path, tc.body, header...)), " "); got != tc.want {
			t.Errorf("%s %s of %s has the labels %q, want %q", tc.method, tc.path, tc.body, got, tc.want)
		}
	}
}

// A rule that is reinvoked runs once more, if a later one changed the object.
func TestMutationsAreReinvoked(t *testing.T) {
	count := func(label string) string {
		return `Object{metadata: Object.metadata{labels: {"` + label + `": string(int(object.metadata.?labels["` + label + `"].orValue("0")) + 1)}}}`
	}
	p := newMutatedPlane(t, rule("one", 1, "ApplyConfiguration", count("one"), `reinvocationPolicy: "IfNeeded"`)+
		rule("two", 2, "ApplyConfiguration", count("two"), "")+
		rule("three", 3, "ApplyConfiguration", count("three"), `reinvocationPolicy: "IfNeeded"`)+
		rule("four", 4, "ApplyConfiguration", `Object{metadata: Object.metadata{labels: {"four": "4"}}}`, `reinvocationPolicy: "IfNeeded", match: conditions: c: "object.spec.size > 1"`)+
		rule("late", 0, "ApplyConfiguration", count("late"), `reinvocationPolicy: "IfNeeded", match: conditions: c: "has(object.metadata.labels)"`))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	want := []string{"t/mutate/one/x /metadata/labels/one", "t/mutate/two/x /metadata/labels/two", "t/mutate/three/x /metadata/labels/three",
		"t/mutate/one/x /metadata/labels/one again", "t/mutate/three/x /metadata/labels/three again"}
	if got := mutationsOf(p.LastEvent(t)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// The rule that did not match at first is not asked again, and the last one that changed something is not either, unless
	// one that was asked again changed the object.
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 2))
	want = slices.Insert(want, 3, "t/mutate/four/x /metadata/labels/four")
	if got := mutationsOf(p.LastEvent(t)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMutationsThatFail(t *testing.T) {
	for name, tc := range map[string]struct {
		rules, body string
		code        int
		texts       []string
	}{
		"an expression that fails": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/owner', value: object.metadata.labels['owner']}]", ""),
			code:  403, texts: []string{`"reason":"Invalid"`, `mutation t/mutate/m/x (bundle.cue:`, "failed: expression '[JSONPatch", "no such key: labels", `"reason":"t/mutate/m/x"`},
		},
		"a patch that does not fit": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/size', value: 5}, JSONPatch{op: 'remove', path: '/spec/owner'}]", ""),
			code:  403, texts: []string{"mutation t/mutate/m/x (bundle.cue:", "the JSONPatch cannot be applied: error in remove for path: '/spec/owner'"},
		},
		"a condition that fails": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/size', value: 5}]", `match: conditions: c: "object.metadata.labels['x'] == 'y'"`),
			code:  403, texts: []string{"mutation t/mutate/m (bundle.cue:", "condition c: expression 'object.metadata.labels"},
		},
		"a rule that is ignored then": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/size', value: 5}, JSONPatch{op: 'remove', path: '/spec/owner'}]", `failurePolicy: "Ignore"`) +
				rule("c", 2, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/size', value: 5}]", `failurePolicy: "Ignore", match: conditions: c: "object.metadata.labels['x'] == 'y'"`),
			code: 201, texts: []string{`"size":3`},
		},
		"another kind in a configuration that is ignored then": {
			rules: rule("m", 1, "ApplyConfiguration", "Object{kind: 'Plain', spec: Object.spec{size: 9}}", `failurePolicy: "Ignore"`) +
				rule("n", 2, "ApplyConfiguration", "Object{spec: Object.spec{owner: 'x@example.com'}}", ""),
			code: 201, texts: []string{`"size":3`, `"owner":"x@example.com"`, `"kind":"Widget"`},
		},
		"a patch whose test fails": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'test', path: '/spec/size', value: 4}, JSONPatch{op: 'replace', path: '/spec/size', value: 5}]", ""),
			code:  201, texts: []string{`"size":3`},
		},
		"another name": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'replace', path: '/metadata/name', value: 'z'}]", ""),
			code:  422, texts: []string{`metadata.name: Invalid value: \"z\"`, "the object was changed by t/mutate/m/x (bundle.cue:", `"causes":[{"reason":"t/mutate/m/x"`},
		},
		"another kind": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'replace', path: '/kind', value: 'Plain'}]", ""),
			code:  403, texts: []string{"mutation t/mutate/m/x (bundle.cue:", "kind cannot be changed"},
		},
		"labels that are none": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 5}}]", ""),
			code:  403, texts: []string{"mutation t/mutate/m/x (bundle.cue:", "metadata.labels[a] must be a string, and is 5"},
		},
		"an invalid value": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'replace', path: '/spec/size', value: object.spec.size + 5000}]", ""),
			code:  422, texts: []string{`spec.size: Invalid value: 5003`, "(made by mutation t/mutate/m/x (bundle.cue:", `"field":"spec.size"`},
		},
		"a value of another type": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'replace', path: '/spec', value: {'size': 'x'}}]", ""),
			code:  422, texts: []string{`spec.size: Invalid value: \"x\"`, "(made by mutation t/mutate/m/x (bundle.cue:"},
		},
		"a field that is required": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'remove', path: '/spec/size'}]", ""),
			code:  422, texts: []string{`spec.size: Required value`, "made by mutation t/mutate/m/x (bundle.cue:"},
		},
		"a mistake of the client": {
			rules: rule("m", 1, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/color', value: 'red'}]", ""),
			body:  `{"metadata":{"name":"a"},"spec":{"size":5000}}`,
			code:  422, texts: []string{`spec.size: Invalid value: 5000`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newMutatedPlane(t, tc.rules)
			body := tc.body
			if body == "" {
				body = planetest.Widget("a", 3)
			}
			a := p.Do("POST", planetest.WidgetsPath, body)
			a.Refuses(t, tc.code, tc.texts...)
			if name == "a mistake of the client" && strings.Contains(string(a.Body), "mutate") {
				t.Errorf("the mistake of the client is that of a rule: %s", a)
			}
		})
	}
}

// A field that the schema does not have is dropped, and the client is told which rule set it.
func TestMutationsArePruned(t *testing.T) {
	p := newMutatedPlane(t, rule("m", 1, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/sizes', value: 5}]", "")+
		rule("n", 2, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/limits', value: {'max': 5}}, JSONPatch{op: 'add', path: '/kinds', value: 5}]", `failurePolicy: "Fail", match: conditions: x: "object.metadata.name == 'b'"`))
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 3))
	if strings.Contains(string(a.Body), "sizes") {
		t.Errorf("%s", a)
	}
	if got := mutationsOf(p.LastEvent(t)); len(got) > 0 {
		t.Errorf("the event has the mutations %q, of which nothing came", got)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 3))
	if got := mutationsOf(p.LastEvent(t)); !slices.Equal(got, []string{"t/mutate/n/x /spec/limits"}) {
		t.Errorf("the event has the mutations %q, and not what was stored of them", got)
	}
	e := p.Must(t, 201, "POST", planetest.ExplanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"create","group":"example.com","version":"v1","resource":"widgets","namespace":"default","object":`+planetest.Widget("c", 3)+`}}`)
	if want := "sets what the kind does not have, and is dropped: spec.sizes"; !strings.Contains(string(e.Body), want) {
		t.Errorf("the explanation does not say %q: %s", want, e)
	}
	if w := a.Header.Values("Warning"); len(w) != 1 || !strings.Contains(w[0], `mutation t/mutate/m/x (bundle.cue:`) || !strings.Contains(w[0], `unknown field \"spec.sizes\"`) {
		t.Errorf("the warnings are %q", w)
	}
}

// Writes of subresources are changed as far as they can change the object.
func TestMutationsOfSubresources(t *testing.T) {
	p := newMutatedPlane(t, `admission: mutate: {
		status: {order: 1, match: {apiGroups: ["example.com"], resources: ["widgets/status"]}, mutations: x: {patchType: "ApplyConfiguration", expression: #"Object{spec: Object.spec{size: 7}, status: Object.status{ready: true}}"#}}
		scale: {order: 2, match: {apiGroups: ["example.com"], resources: ["widgets/scale"]}, mutations: x: {patchType: "ApplyConfiguration", expression: #"Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"#}}
		whole: {order: 3, match: {apiGroups: ["example.com"], resources: ["widgets"]}, mutations: x: {patchType: "ApplyConfiguration", expression: #"Object{status: Object.status{ready: false}, spec: Object.spec{owner: "x@example.com"}}"#}}
	}`)
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 3))
	if a.Field("status", "ready") != nil || a.Field("spec", "owner") != "x@example.com" {
		t.Errorf("created: %s", a)
	}
	a = p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/status", `{"status":{"note":"x"}}`, "Content-Type", "application/merge-patch+json")
	if a.Field("status", "ready") != true || a.Field("status", "note") != "x" || a.Field("spec", "size") != 3.0 {
		t.Errorf("status: %s", a)
	}
	if got := mutationsOf(p.LastEvent(t)); !slices.Equal(got, []string{"t/mutate/status/x /status/ready"}) {
		t.Errorf("the event of the status has the mutations %q, and not only what it changed", got)
	}
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale", `{"spec":{"replicas":10}}`, "Content-Type", "application/merge-patch+json")
	if a = p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", ""); a.Field("spec", "size") != 11.0 {
		t.Errorf("scaled: %s", a)
	}
	if got := mutationsOf(p.LastEvent(t)); !slices.Equal(got, []string{"t/mutate/scale/x /spec/size"}) {
		t.Errorf("the event has the mutations %q", got)
	}
	a = p.Must(t, 201, "POST", planetest.BlamesPath, `{"apiVersion":"log.stele.dev/v1","kind":"Blame","spec":{"group":"example.com","resource":"widgets","namespace":"default","name":"a"}}`)
	fields, _ := a.Field("status", "fields").([]any)
	got := map[string]any{}
	for _, f := range fields {
		f := f.(map[string]any)
		got[f["path"].(string)] = f["rule"]
	}
	for path, want := range map[string]any{"spec.size": "t/mutate/scale/x", "spec.owner": "t/mutate/whole/x", "status.ready": "t/mutate/status/x", "status.note": nil} {
		if got[path] != want {
			t.Errorf("blame says that %s was made by %v, want %v", path, got[path], want)
		}
	}
}

// Dry runs, patches, server-side apply and updates that create are changed as well, and again after a conflict.
func TestMutationsOfAllWrites(t *testing.T) {
	p := newMutatedPlane(t, rule("m", 1, "ApplyConfiguration", `Object{spec: Object.spec{limits: {"max": object.spec.size * 2}}}`, ""))
	max := func(a planetest.Answer) any { return a.Field("spec", "limits", "max") }
	if a := p.Must(t, 201, "POST", planetest.WidgetsPath+"?dryRun=All", planetest.Widget("a", 3)); max(a) != 6.0 {
		t.Errorf("dry run: %s", a)
	}
	p.Must(t, 404, "GET", planetest.WidgetsPath+"/a", "")
	applied := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":4}}`
	for _, step := range []struct {
		code               int
		method, path, body string
		header             []string
		want               float64
	}{
		{201, "PATCH", planetest.WidgetsPath + "/a?fieldManager=m", applied, []string{"Content-Type", "application/apply-patch+yaml"}, 8},
		{200, "PATCH", planetest.WidgetsPath + "/a?fieldManager=m", applied, []string{"Content-Type", "application/apply-patch+yaml"}, 8},
		{200, "PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":5}}`, []string{"Content-Type", "application/merge-patch+json"}, 10},
		{200, "PATCH", planetest.WidgetsPath + "/a", `[{"op":"replace","path":"/spec/size","value":6}]`, []string{"Content-Type", "application/json-patch+json"}, 12},
		{200, "PUT", planetest.WidgetsPath + "/a", `{"metadata":{"name":"a","resourceVersion":"RV"},"spec":{"size":7}}`, nil, 14},
	} {
		now, _ := p.Do("GET", planetest.WidgetsPath+"/a", "").Field("metadata", "resourceVersion").(string)
		step.body = strings.Replace(step.body, "RV", now, 1)
		if a := p.Must(t, step.code, step.method, step.path, step.body, step.header...); max(a) != step.want {
			t.Errorf("%s %s: %s", step.method, step.body, a)
		}
	}
}

// The changes API, blame, explanations and the audit log name the rule and the line of what a mutation set.
func TestMutationsAreShown(t *testing.T) {
	p := newMutatedPlane(t, rule("m", 1, "ApplyConfiguration", `Object{metadata: Object.metadata{labels: {"team": "core"}}, spec: Object.spec{size: object.spec.size + 1}}`, ""))
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":3,"owner":"x@example.com"}}`)
	source := p.LastEvent(t).Meta.Decisions.Mutations[0].Source

	a := p.Must(t, 201, "POST", planetest.BlamesPath, `{"apiVersion":"log.stele.dev/v1","kind":"Blame","spec":{"group":"example.com","resource":"widgets","namespace":"default","name":"a"}}`)
	fields, _ := a.Field("status", "fields").([]any)
	types := map[string]string{}
	for _, f := range fields {
		f := f.(map[string]any)
		types[f["path"].(string)] = f["type"].(string)
		if f["type"] == "Mutated" && (f["rule"] != "t/mutate/m/x" || f["source"] != source || f["actor"] == "") {
			t.Errorf("a mutated field is %v", f)
		}
	}
	for path, want := range map[string]string{"spec.size": "Mutated", "metadata.labels.team": "Mutated", "spec.owner": "Created", "spec.color": "Defaulted"} {
		if types[path] != want {
			t.Errorf("blame says that %s was %s, want %s", path, types[path], want)
		}
	}

	revision := p.Committer.Tip().Revision()
	a = p.Must(t, 200, "GET", fmt.Sprintf("/apis/log.stele.dev/v1/changes/%d", revision), "")
	if got, want := fmt.Sprint(a.Field("decision", "mutations")), fmt.Sprintf("[map[by:Rule paths:[/metadata/labels/team /spec/size] rule:t/mutate/m/x source:%s]]", source); got != want {
		t.Errorf("the change has the mutations %s, want %s", got, want)
	}

	a = p.Must(t, 201, "POST", planetest.ExplanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"create","group":"example.com","version":"v1","resource":"widgets","namespace":"default","object":`+planetest.Widget("b", 3)+`}}`)
	if !strings.Contains(string(a.Body), `"name":"mutation","verdict":"passed","considered":[{"rule":"t/mutate/m/x","source":"`+source+`","verdict":"changes /metadata/labels/team to \"core\", /spec/size from 3 to 4"}]`) {
		t.Errorf("the explanation lacks the mutation: %s", a)
	}
}
