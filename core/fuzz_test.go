package core_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"stele.dev/stele/core/run/plane/planetest"
)

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
		create:         planetest.Widget("w", 3),
		update:         `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"there","resourceVersion":"9","labels":{"a":"b"}},"spec":{"size":3,"ports":[{"name":"x","port":1}]}}`,
		mergePatch:     `{"spec":{"size":null,"limits":{"x":1}}}`,
		jsonPatch:      `[{"op":"add","path":"/spec/free","value":{"x":[1.5,"y",null]}},{"op":"test","path":"/kind","value":"Widget"}]`,
		createYAML:     "apiVersion: example.com/v1\nkind: Widget\nmetadata: {generateName: w-}\nspec:\n  size: 0x10\n  color: red\n",
		createSecret:   `{"metadata":{"name":"s"},"data":{"a":"eA=="},"stringData":{"b":"y"},"type":"Opaque"}`,
		strategicPatch: `{"data":{"a":null,"$patch":"replace"}}`,
		remove:         `{"preconditions":{"uid":"x"},"propagationPolicy":"Orphan"}`,
	} {
		f.Add(op, body)
	}
	f.Fuzz(func(t *testing.T, op uint8, body string) {
		p := planetest.NewPlane(t)
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("there", 1))
		p.Must(t, 201, "POST", secrets, `{"metadata":{"name":"there"},"data":{"a":"eA=="}}`)
		before := p.Committer.Tip().Revision()
		var a planetest.Answer
		switch op {
		case create:
			a = p.Do("POST", planetest.WidgetsPath, body)
		case update:
			a = p.Do("PUT", planetest.WidgetsPath+"/there", body)
		case mergePatch:
			a = p.Do("PATCH", planetest.WidgetsPath+"/there", body, "Content-Type", "application/merge-patch+json")
		case jsonPatch:
			a = p.Do("PATCH", planetest.WidgetsPath+"/there", body, "Content-Type", "application/json-patch+json")
		case createYAML:
			a = p.Do("POST", planetest.WidgetsPath, body, "Content-Type", "application/yaml")
		case createSecret:
			a = p.Do("POST", secrets, body)
		case strategicPatch:
			a = p.Do("PATCH", secrets+"/there", body, "Content-Type", "application/strategic-merge-patch+json")
		default:
			a = p.Do("DELETE", planetest.WidgetsPath+"/there", body)
		}
		planetest.CheckAnswer(t, a)
		after := p.Committer.Tip().Revision()
		if a.Code >= 400 {
			if after != before {
				t.Fatalf("refused, and yet an event: %s", a)
			}
			return
		}
		if op > strategicPatch {
			return
		}
		path := planetest.WidgetsPath
		if op == createSecret || op == strategicPatch {
			path = secrets
		}
		name, _ := a.Field("metadata", "name").(string)
		read := p.Must(t, 200, "GET", path+"/"+name, "")
		again := p.Must(t, 200, "PUT", path+"/"+name, string(read.Body))
		if string(again.Body) != string(read.Body) || p.Committer.Tip().Revision() != after {
			t.Fatalf("writing what was read changed it:\n%s\n%s", read.Body, again.Body)
		}
	})
}

// Whatever the query of a list or a watch: it is answered as bad input or for what it is,
// and never with more than there is.
func FuzzReadQuery(f *testing.F) {
	p := planetest.NewPlane(f)
	planetest.Fill(f, p, 3)
	token := p.Must(f, 200, "GET", planetest.WidgetsPath+"?limit=1", "").Field("metadata", "continue").(string)
	for _, query := range []string{
		"limit=9223372036854775807", "limit=-9223372036854775808", "limit=1&continue=" + token, "continue=" + token + "&resourceVersion=0", "continue=e30",
		"resourceVersion=0", "resourceVersion=18446744073709551615", "resourceVersion=18446744073709551616&resourceVersionMatch=Exact", "resourceVersion=-0",
		"resourceVersion=5&resourceVersionMatch=Exact&limit=1", "resourceVersion=5&resourceVersionMatch=NotOlderThan", "resourceVersion=%00", "resourceVersion=1&resourceVersion=x",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&watch=1", "sendInitialEvents=maybe", "allowWatchBookmarks=", "watch=0", "watch=%ff",
		"labelSelector=a+in+(b,c),!d,e>5", "labelSelector=" + strings.Repeat("a,", 100), "fieldSelector=metadata.name=w00,spec.color!=red", "fieldSelector=metadata.name%3D..%2F..", `fieldSelector=a\,=b`,
		"timeoutSeconds=x", "timeout=1ns", "timeout=-1h", "pretty=1", "includeObject=None", "shardSelector=x", "export=1", "&&==;%", "%zz",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, path := range []string{planetest.WidgetsPath, "/apis/example.com/v1/watch/namespaces/default/widgets", "/api/v1/watch/namespaces", "/apis/rbac.authorization.k8s.io/v1/clusterroles", planetest.ChangesPath, planetest.WidgetsPath + "/w00"} {
			q := planetest.Request("GET", path, "")
			if q.URL.RawQuery = query; q.URL.Query().Get("timeout") != "" {
				continue // what takes as long as it likes
			}
			// The first of several is the one that counts: watches end as soon as they have begun.
			q.URL.RawQuery = "timeoutSeconds=-1&" + query
			a := p.Serve(q.WithContext(ctx))
			if ctx.Err() != nil {
				t.Fatalf("%s has not ended", path)
			}
			if len(a.Body) > 1<<20 {
				t.Fatalf("%s: %d bytes", path, len(a.Body))
			}
			if a.Code == http.StatusGatewayTimeout {
				if !strings.Contains(string(a.Body), "ResourceVersionTooLarge") {
					t.Fatalf("%s: %s", path, a)
				}
			} else if a.Code != http.StatusOK {
				planetest.CheckAnswer(t, a)
			} else if d := json.NewDecoder(bytes.NewReader(a.Body)); true {
				for d.More() {
					var event struct {
						Type   string
						Object struct{ Code any }
					}
					if err := d.Decode(&event); err != nil || event.Type == "ERROR" && event.Object.Code == 500.0 {
						t.Fatalf("%s: %v %s", path, err, a)
					}
				}
			}
		}
	})
}

// Selectors are those of apimachinery, and nothing in a query makes a list fail in any
// way but a Status.
func FuzzListQuery(f *testing.F) {
	p := planetest.NewPlane(f)
	for _, w := range []string{
		`{"metadata":{"name":"a","labels":{"app":"x","tier":"1"}},"spec":{"size":1,"color":"red"}}`,
		`{"metadata":{"name":"b","labels":{"app":"y"}},"spec":{"size":2}}`,
		`{"metadata":{"name":"c"},"spec":{"size":3}}`,
	} {
		p.Must(f, 201, "POST", planetest.WidgetsPath, w)
	}
	items := p.Must(f, 200, "GET", planetest.WidgetsPath, "").Field("items").([]any)
	token := p.Must(f, 200, "GET", planetest.WidgetsPath+"?limit=1", "").Field("metadata", "continue").(string)
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
		a := p.Do(http.MethodGet, planetest.WidgetsPath+"?"+query.Encode(), "")
		planetest.CheckAnswer(t, a)
		l, labelErr := labels.Parse(labelSelector)
		fs, fieldErr := fields.ParseSelector(fieldSelector)
		if (labelErr != nil || fieldErr != nil) && a.Code != http.StatusBadRequest {
			t.Fatalf("a selector that is none was answered with %s", a)
		}
		if a.Code != http.StatusOK || next != "" || limit != "" {
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
		for _, item := range a.Field("items").([]any) {
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

// Whatever the query and the body of a write, at an object, its parts and its collection: it
// is answered, and what is refused or a dry run changes nothing.
func FuzzWrite(f *testing.F) {
	type write struct{ method, path, contentType string }
	writes := []write{
		{"PUT", "/there/scale", "application/json"},
		{"PATCH", "/there/scale", "application/merge-patch+json"},
		{"PATCH", "/there/scale", "application/json-patch+json"},
		{"PATCH", "/there/status", "application/merge-patch+json"},
		{"PUT", "/there/status", "application/yaml"},
		{"DELETE", "/there", "application/json"},
		{"DELETE", "/there", "application/yaml"},
		{"DELETE", "/there", "application/vnd.kubernetes.protobuf"},
		{"DELETE", "", "application/json"},
		{"PATCH", "/there", "application/json-patch+json"},
		{"PATCH", "/there", "application/merge-patch+json"},
		{"PUT", "/there", "application/json"},
		{"POST", "", "application/json"},
		{"PUT", "/there/scale", "application/vnd.kubernetes.protobuf"},
	}
	for i, seed := range []struct{ query, body string }{
		{"fieldManager=m&fieldValidation=Strict", `{"kind":"Scale","metadata":{"name":"there"},"spec":{"replicas":4}}`},
		{"dryRun=All&force=true", `{"spec":{"replicas":-2147483648}}`},
		{"fieldValidation=Ignore", `[{"op":"remove","path":"/spec"},{"op":"copy","from":"/status","path":"/spec"}]`},
		{"dryRun=All&dryRun=Some", `{"status":{"replicas":1e9,"selector":null},"metadata":{"finalizers":["a/b"]}}`},
		{"pretty=1", "kind: Widget\nmetadata: {name: there}\nstatus: {replicas: 0x7f}\n"},
		{"propagationPolicy=Orphan&gracePeriodSeconds=-1", ""},
		{"", "preconditions: {uid: x, resourceVersion: '1'}\norphanDependents: false\n"},
		{"", "k8s\x00"},
		{"labelSelector=a,!b&fieldSelector=metadata.name%3Dthere&limit=1&continue=x&resourceVersion=1&resourceVersionMatch=Exact&timeoutSeconds=1&watch=true", `{"propagationPolicy":"Foreground"}`},
		{"ignoreStoreReadErrorWithClusterBreakingPotential=1", `[{"op":"test","path":"/metadata/finalizers/0","value":"x"},{"op":"move","from":"","path":"/a"}]`},
		{"timeout=1h", `{"metadata":{"resourceVersion":null,"deletionTimestamp":"2020-01-01T00:00:00Z","ownerReferences":[{}]}}`},
		{"fieldValidation=x", `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"there","uid":"x"}}`},
		{"dryRun=", `{"kind":"Widget","metadata":{"generateName":"` + "g" + `"},"spec":{"size":1,"replicas":5000000000}}`},
		{"", "k8s\x00\n\x15\n\x0eautoscaling/v1\x12\x05Scale"},
	} {
		f.Add(uint8(i), seed.query, seed.body)
	}
	f.Fuzz(func(t *testing.T, which uint8, query, body string) {
		p := planetest.NewScaledPlane(t)
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("there", `,"replicas":3`))
		before := p.Committer.Tip().Revision()
		w := writes[int(which)%len(writes)]
		q := planetest.Request(w.method, planetest.WidgetsPath+w.path, body, "Content-Type", w.contentType)
		q.URL.RawQuery = query
		a := p.Serve(q)
		planetest.CheckAnswer(t, a)
		options, _ := url.ParseQuery(query)
		dry := slices.Contains(options["dryRun"], "All") && (w.method != "DELETE" || body == "")
		if after := p.Committer.Tip().Revision(); (a.Code >= 400 || dry) && after != before {
			t.Fatalf("it changed something: %s", a)
		}
		if dry && a.Code < 400 {
			p.Must(t, 200, "GET", planetest.WidgetsPath+"/there", "")
		}
	})
}

// Whatever is applied: it is answered, what is refused changes nothing, and what was accepted
// changes nothing when it is applied again.
func FuzzApply(f *testing.F) {
	const secret = "/api/v1/namespaces/default/secrets/there"
	places := []string{
		planetest.WidgetsPath + "/there", planetest.WidgetsPath + "/new", planetest.WidgetsPath + "/there/status", planetest.WidgetsPath + "/there/scale",
		secret, "/api/v1/namespaces/default/events/new", "/apis/events.k8s.io/v1/namespaces/default/events/new", "/api/v1/namespaces/fresh",
	}
	const event = `metadata: {name: new, namespace: default}
eventTime: "2026-01-02T03:04:05.000006Z"
reportingInstance: i
action: a
reason: r
type: Normal
`
	for i, body := range []string{
		"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: there, labels: {a: b}}\nspec: {size: 4, replicas: 2}\n",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"new","finalizers":["example.com/x"],"ownerReferences":[{"uid":"u"}]},"spec":{"size":1,"nothing":null}}`,
		"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: there, managedFields: []}\nstatus: &a {replicas: 1, again: *a}\n",
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"there","namespace":"default"},"spec":{"replicas":7}}`,
		"apiVersion: v1\nkind: Secret\nmetadata: {name: there, resourceVersion: '1'}\nstringData: {a: x, a: y}\ntype: Opaque\n",
		"apiVersion: v1\nkind: Event\ninvolvedObject: {kind: Widget, name: there, namespace: default}\nreportingComponent: example.com/c\n" + event,
		"apiVersion: events.k8s.io/v1\nkind: Event\nregarding: {kind: Widget, name: there, namespace: default}\nreportingController: example.com/c\n" + event,
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: fresh}\nspec: {finalizers: [kubernetes, a/b]}\nstatus: {conditions: [{type: x}, {type: x}]}\n",
	} {
		f.Add(uint8(i), i%2 == 0, body)
	}
	f.Fuzz(func(t *testing.T, at uint8, force bool, body string) {
		p := planetest.NewScaledPlane(t)
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("there", `,"replicas":3`))
		p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"there"},"data":{"a":"eA=="}}`)
		path := fmt.Sprintf("%s?fieldManager=m&force=%t", places[int(at)%len(places)], force)
		apply := func() (a planetest.Answer, revisions uint64) {
			before := p.Committer.Tip().Revision()
			a = p.Do("PATCH", path, body, "Content-Type", planetest.Applied)
			planetest.CheckAnswer(t, a)
			revisions = p.Committer.Tip().Revision() - before
			if a.Code >= 400 && revisions > 0 {
				t.Fatalf("refused, and yet an event: %s", a)
			}
			return a, revisions
		}
		first, _ := apply()
		if again, revisions := apply(); first.Code < 400 && revisions > 0 {
			t.Fatalf("what was applied changes something when it is applied again:\n%s\n%s", first, again)
		}
	})
}
