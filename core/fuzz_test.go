package core_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// checkAnswer holds what is true of every answer: no panic and no 500, a Status if it
// is an error, and JSON in any case.
func checkAnswer(t *testing.T, a answer) {
	t.Helper()
	if !json.Valid(a.body) {
		t.Fatalf("not JSON: %s", a)
	}
	if a.code < 400 {
		return
	}
	var s metav1.Status
	if err := json.Unmarshal(a.body, &s); err != nil {
		t.Fatal(err)
	}
	if a.code >= 500 || s.Kind != "Status" || int(s.Code) != a.code || s.Reason == "" || s.Message == "" {
		t.Fatalf("no answer of ours: %s", a)
	}
}

// Whatever the body of a write: it is answered; what is refused changes nothing, and
// what is accepted can be read again and written again without a change.
func FuzzRequestBody(f *testing.F) {
	const (
		create = iota
		update
		mergePatch
		jsonPatch
		createYAML
		createSecret
		strategicPatch
		remove
	)
	const secrets = "/api/v1/namespaces/default/secrets"
	for op, body := range map[uint8]string{
		create:         widget("w", 3),
		update:         `{"metadata":{"name":"there","resourceVersion":"9","labels":{"a":"b"}},"spec":{"size":3,"ports":[{"name":"x","port":1}]}}`,
		mergePatch:     `{"spec":{"size":null,"limits":{"x":1}}}`,
		jsonPatch:      `[{"op":"add","path":"/spec/free","value":{"x":[1.5,"y",null]}},{"op":"test","path":"/kind","value":"Widget"}]`,
		createYAML:     "metadata: {generateName: w-}\nspec:\n  size: 0x10\n  color: red\n",
		createSecret:   `{"metadata":{"name":"s"},"data":{"a":"eA=="},"stringData":{"b":"y"},"type":"Opaque"}`,
		strategicPatch: `{"data":{"a":null,"$patch":"replace"}}`,
		remove:         `{"preconditions":{"uid":"x"},"propagationPolicy":"Orphan"}`,
	} {
		f.Add(op, body)
	}
	f.Fuzz(func(t *testing.T, op uint8, body string) {
		p := newPlane(t)
		p.must(t, 201, "POST", widgetsPath, widget("there", 1))
		p.must(t, 201, "POST", secrets, `{"metadata":{"name":"there"},"data":{"a":"eA=="}}`)
		before := p.committer.Tip().Revision()
		var a answer
		switch op {
		case create:
			a = p.do("POST", widgetsPath, body)
		case update:
			a = p.do("PUT", widgetsPath+"/there", body)
		case mergePatch:
			a = p.do("PATCH", widgetsPath+"/there", body, "Content-Type", "application/merge-patch+json")
		case jsonPatch:
			a = p.do("PATCH", widgetsPath+"/there", body, "Content-Type", "application/json-patch+json")
		case createYAML:
			a = p.do("POST", widgetsPath, body, "Content-Type", "application/yaml")
		case createSecret:
			a = p.do("POST", secrets, body)
		case strategicPatch:
			a = p.do("PATCH", secrets+"/there", body, "Content-Type", "application/strategic-merge-patch+json")
		default:
			a = p.do("DELETE", widgetsPath+"/there", body)
		}
		checkAnswer(t, a)
		after := p.committer.Tip().Revision()
		if a.code >= 400 {
			if after != before {
				t.Fatalf("refused, and yet an event: %s", a)
			}
			return
		}
		if op > strategicPatch {
			return
		}
		path := widgetsPath
		if op == createSecret || op == strategicPatch {
			path = secrets
		}
		name, _ := a.field("metadata", "name").(string)
		read := p.must(t, 200, "GET", path+"/"+name, "")
		again := p.must(t, 200, "PUT", path+"/"+name, string(read.body))
		if string(again.body) != string(read.body) || p.committer.Tip().Revision() != after {
			t.Fatalf("writing what was read changed it:\n%s\n%s", read.body, again.body)
		}
	})
}

// Selectors are those of apimachinery, and nothing in a query makes a list fail in any
// way but a Status.
func FuzzListQuery(f *testing.F) {
	p := newPlane(f)
	for _, w := range []string{
		`{"metadata":{"name":"a","labels":{"app":"x","tier":"1"}},"spec":{"size":1,"color":"red"}}`,
		`{"metadata":{"name":"b","labels":{"app":"y"}},"spec":{"size":2}}`,
		`{"metadata":{"name":"c"},"spec":{"size":3}}`,
	} {
		p.must(f, 201, "POST", widgetsPath, w)
	}
	items := p.must(f, 200, "GET", widgetsPath, "").field("items").([]any)
	token := p.must(f, 200, "GET", widgetsPath+"?limit=1", "").field("metadata", "continue").(string)
	f.Add("app in (x,y),tier!=2", "spec.color=red", "", "1")
	f.Add("!app", "metadata.name!=a,metadata.namespace==default", token, "2")
	f.Add("tier>0", "metadata.name=a", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0", "-1")
	f.Fuzz(func(t *testing.T, labelSelector, fieldSelector, next, limit string) {
		query := url.Values{}
		for name, value := range map[string]string{"labelSelector": labelSelector, "fieldSelector": fieldSelector, "continue": next, "limit": limit} {
			if value != "" {
				query.Set(name, value)
			}
		}
		a := p.do(http.MethodGet, widgetsPath+"?"+query.Encode(), "")
		checkAnswer(t, a)
		l, labelErr := labels.Parse(labelSelector)
		fs, fieldErr := fields.ParseSelector(fieldSelector)
		if (labelErr != nil || fieldErr != nil) && a.code != http.StatusBadRequest {
			t.Fatalf("a selector that is none was answered with %s", a)
		}
		if a.code != http.StatusOK || next != "" || limit != "" {
			return
		}
		want := map[string]bool{}
		for _, item := range items {
			meta := item.(map[string]any)["metadata"].(map[string]any)
			set := labels.Set{}
			if m, ok := meta["labels"].(map[string]any); ok {
				for k, v := range m {
					set[k] = v.(string)
				}
			}
			color := item.(map[string]any)["spec"].(map[string]any)["color"].(string)
			name := meta["name"].(string)
			if l.Matches(set) && fs.Matches(fields.Set{"metadata.name": name, "metadata.namespace": "default", "spec.color": color}) {
				want[name] = true
			}
		}
		for _, item := range a.field("items").([]any) {
			name := item.(map[string]any)["metadata"].(map[string]any)["name"].(string)
			if !want[name] {
				t.Fatalf("%q %q: %s should not be listed", labelSelector, fieldSelector, name)
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Fatalf("%q %q: %v should be listed", labelSelector, fieldSelector, want)
		}
	})
}
