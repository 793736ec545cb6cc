package core_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// What is wrong gets the code and reason that kube-apiserver gives, says where, and
// changes nothing.
func TestBadInput(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("there", 1))
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"frozen"},"data":{"a":"b"},"immutable":true}`)
	before := p.Committer.Tip().Revision()
	yaml := []string{"Content-Type", "application/yaml"}
	merge := []string{"Content-Type", "application/merge-patch+json"}
	long := strings.Repeat("x", 260)
	for _, tc := range []struct {
		name         string
		method, path string
		body         string
		header       []string
		code         int
		reason       string
		contains     []string
	}{
		{"malformed JSON", "POST", planetest.WidgetsPath, `{"metadata":`, nil, 400, "BadRequest", []string{"the object provided is unrecognized (must be of type Widget)"}},
		{"trailing data", "POST", planetest.WidgetsPath, `{} {}`, nil, 400, "BadRequest", []string{"unrecognized"}},
		{"no body", "POST", planetest.WidgetsPath, "", []string{"Content-Type", "application/json"}, 400, "BadRequest", []string{"unrecognized"}},
		{"null", "POST", planetest.WidgetsPath, "null", nil, 400, "BadRequest", []string{"unrecognized"}},
		{"a list", "POST", planetest.WidgetsPath, "[]", nil, 400, "BadRequest", []string{"unrecognized"}},
		{"malformed YAML", "POST", planetest.WidgetsPath, "metadata:\n\t- x", yaml, 400, "BadRequest", []string{"unrecognized"}},
		{"a YAML bomb", "POST", planetest.WidgetsPath, bomb(), yaml, 400, "BadRequest", nil},
		{"deep nesting", "POST", planetest.WidgetsPath, strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000), nil, 400, "BadRequest", []string{"max depth"}},
		{"invalid UTF-8 as a name", "POST", planetest.WidgetsPath, "{\"metadata\":{\"name\":\"a\xff\"},\"spec\":{\"size\":1}}", nil, 422, "Invalid", []string{"metadata.name"}},
		{"another kind", "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"}}`, nil, 422, "Invalid", []string{`Gadget.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget`}},
		{"no version", "POST", planetest.WidgetsPath, `{"kind":"Widget","metadata":{"name":"a"}}`, nil, 400, "BadRequest", []string{"the API version in the data () does not match"}},
		{"another version", "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a"}}`, nil, 400, "BadRequest",
			[]string{"the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"}},
		{"metadata that cannot be decoded, of another version", "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a","labels":"x"}}`, nil, 400, "BadRequest",
			[]string{`Widget in version \"v2\" cannot be handled as a Widget: json: cannot unmarshal string into Go struct field`}},
		{"metadata that cannot be decoded, without a version", "POST", planetest.WidgetsPath, `{"kind":"Widget","metadata":{"name":"a","labels":"x"}}`, nil, 400, "BadRequest",
			[]string{`Widget in version \"\" cannot be handled as a Widget: json: cannot unmarshal string into Go struct field`}},
		{"unknown metadata of another kind", "POST", planetest.WidgetsPath + "?fieldValidation=Strict", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a","unknown":"x"}}`, nil, 400, "BadRequest",
			[]string{`Gadget in version \"v1\" cannot be handled as a Gadget: strict decoding error: unknown field \"metadata.unknown\"`}},
		{"a kind that is no string", "POST", planetest.WidgetsPath, `{"kind":7}`, nil, 400, "BadRequest", nil},
		{"metadata that is no object", "POST", planetest.WidgetsPath, `{"metadata":7}`, nil, 400, "BadRequest", []string{"cannot unmarshal number into Go value of type v1.ObjectMeta"}},
		{"labels of the wrong type", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","labels":{"k":1}},"spec":{"size":1}}`, nil, 400, "BadRequest", []string{"cannot unmarshal number into Go struct field", "labels of type string"}},
		{"a body over the limit", "POST", planetest.WidgetsPath, `{"metadata":{"name":"` + strings.Repeat("a", 3<<20) + `"}}`, nil, 413, "RequestEntityTooLarge", []string{"limit is 3145728"}},
		{"another content type", "POST", planetest.WidgetsPath, "x", []string{"Content-Type", "text/plain"}, 415, "UnsupportedMediaType", []string{"application/json"}},
		{"protobuf for a custom kind", "POST", planetest.WidgetsPath, "x", []string{"Content-Type", "application/vnd.kubernetes.protobuf"}, 400, "BadRequest", []string{"does not appear to be a protobuf message"}},
		{"protobuf that is none", "POST", "/api/v1/namespaces/default/configmaps", "x", []string{"Content-Type", "application/vnd.kubernetes.protobuf"}, 400, "BadRequest", nil},
		{"an answer that cannot be had", "GET", planetest.WidgetsPath, "", []string{"Accept", "text/html"}, 406, "NotAcceptable", []string{"application/json"}},
		{"an answer to a write that cannot be had", "POST", planetest.WidgetsPath, planetest.Widget("a", 1), []string{"Accept", "text/html"}, 406, "NotAcceptable", nil},

		{"no kind", "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","metadata":{"name":"a"},"spec":{"size":1}}`, nil, 400, "BadRequest", []string{"the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in"}},
		{"no name", "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"size":1}}`, nil, 422, "Invalid", []string{"metadata.name: Required value: name or generateName is required"}},
		{"an invalid name", "POST", planetest.WidgetsPath, planetest.Widget("A_b", 1), nil, 422, "Invalid", []string{`metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain`}},
		{"a long name", "POST", planetest.WidgetsPath, planetest.Widget(long, 1), nil, 422, "Invalid", []string{"must be no more than 253"}},
		{"an invalid label", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","labels":{"-":"x"}},"spec":{"size":1}}`, nil, 422, "Invalid", []string{"metadata.labels: Invalid value"}},
		{"an invalid namespace name", "POST", "/api/v1/namespaces", `{"metadata":{"name":"a.b"}}`, nil, 422, "Invalid", []string{"metadata.name: Invalid value: \\\"a.b\\\": must not contain dots"}},
		{"another namespace", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","namespace":"kube-system"},"spec":{"size":1}}`, nil, 400, "BadRequest",
			[]string{"the namespace of the provided object does not match the namespace sent on the request"}},
		{"a resourceVersion on create", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","resourceVersion":"5"},"spec":{"size":1}}`, nil, 400, "BadRequest", []string{"resourceVersion should not be set on objects to be created"}},
		{"what exists", "POST", planetest.WidgetsPath, planetest.Widget("there", 1), nil, 409, "AlreadyExists", []string{`widgets.example.com \"there\" already exists`}},

		{"no spec", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"}}`, nil, 422, "Invalid", []string{"spec: Required value", "bundle.cue:6"}},
		{"a wrong type", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":"1"}}`, nil, 422, "Invalid", []string{"spec.size: Invalid value", "bundle.cue:7"}},
		{"out of bounds", "POST", planetest.WidgetsPath, planetest.Widget("a", 1001), nil, 422, "Invalid", []string{"spec.size: Invalid value: 1001: must be", "at most 1000", "bundle.cue:7"}},
		{"not of the enum", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"color":"pink"}}`, nil, 422, "Invalid", []string{`spec.color: Unsupported value: \"pink\"`, `\"blue\"`, "bundle.cue:8"}},
		{"not of the pattern", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"owner":"X"}}`, nil, 422, "Invalid", []string{"spec.owner: Invalid value", "bundle.cue:9"}},
		{"in a list", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"ports":[{"name":"x","port":1},{"name":"y","port":0}]}}`, nil, 422, "Invalid", []string{"spec.ports[1].port", "bundle.cue:10"}},
		{"in a map", "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"limits":{"x":"y"}}}`, nil, 422, "Invalid", []string{"spec.limits", "bundle.cue:11"}},
		{"all at once", "POST", planetest.WidgetsPath, `{"metadata":{"name":"A","labels":{"-":""}},"spec":{"size":0,"color":"pink"}}`, nil, 422, "Invalid", []string{"metadata.name", "metadata.labels", "spec.size", "spec.color"}},
		{"an unknown field, strictly", "POST", planetest.WidgetsPath + "?fieldValidation=Strict", `{"metadata":{"name":"a"},"spec":{"size":1,"foo":2}}`, nil, 400, "BadRequest",
			[]string{`Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.foo\"`}},
		{"an unknown field of metadata, strictly", "POST", planetest.WidgetsPath + "?fieldValidation=Strict", `{"metadata":{"name":"a","foo":1},"spec":{"size":1}}`, nil, 400, "BadRequest", []string{`unknown field \"metadata.foo\"`}},
		{"a field given twice, strictly", "POST", planetest.WidgetsPath + "?fieldValidation=Strict", `{"metadata":{"name":"a"},"spec":{"size":1,"size":2}}`, nil, 400, "BadRequest", []string{`duplicate field \"spec.size\"`}},
		{"a field given twice in YAML, strictly", "POST", planetest.WidgetsPath + "?fieldValidation=Strict", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 1, size: 2}", yaml, 400, "BadRequest", []string{"already set in map"}},
		{"a fieldValidation that is none", "POST", planetest.WidgetsPath + "?fieldValidation=Maybe", planetest.Widget("a", 1), nil, 422, "Invalid", []string{"fieldValidation"}},
		{"a dryRun that is none", "POST", planetest.WidgetsPath + "?dryRun=Some", planetest.Widget("a", 1), nil, 422, "Invalid", []string{"dryRun"}},
		{"a field manager with a line break", "POST", planetest.WidgetsPath + "?fieldManager=a%0ab", planetest.Widget("a", 1), nil, 422, "Invalid", []string{"fieldManager"}},

		{"a ConfigMap with a number", "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"},"data":{"a":1}}`, nil, 400, "BadRequest",
			[]string{`ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`}},
		{"a ConfigMap with an invalid key", "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"},"data":{"a b":"x"}}`, nil, 422, "Invalid", []string{`data[a b]: Invalid value: \"a b\": a valid config key must consist of`, `"field":"data[a b]"`}},
		{"a ConfigMap that is immutable", "PATCH", "/api/v1/namespaces/default/configmaps/frozen", `{"data":{"a":"c"}}`, merge, 422, "Invalid", []string{"field is immutable when `immutable` is set"}},
		{"a Secret that is not base64", "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"data":{"a":"?"}}`, nil, 400, "BadRequest",
			[]string{`Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0`}},
		{"a Lease whose time is none", "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"l"},"spec":{"renewTime":"now"}}`, nil, 400, "BadRequest",
			[]string{`Lease in version \"v1\" cannot be handled as a Lease: parsing time \"now\"`}},

		{"an update without a resourceVersion", "PUT", planetest.WidgetsPath + "/there", planetest.Widget("there", 2), nil, 422, "Invalid", []string{`widgets.example.com \"there\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`}},
		{"an update with a resourceVersion that is none", "PUT", planetest.WidgetsPath + "/there", `{"metadata":{"name":"there","resourceVersion":"x"},"spec":{"size":2}}`, nil, 422, "Invalid", []string{"resourceVersion"}},
		{"an update of another name", "PUT", planetest.WidgetsPath + "/there", planetest.Widget("other", 2), nil, 400, "BadRequest", []string{"the name of the object (other) does not match the name on the URL (there)"}},
		{"an update without a name", "PUT", planetest.WidgetsPath + "/there", `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"size":2}}`, nil, 400, "BadRequest", []string{"the name of the object (there based on URL) was undeterminable: name must be provided"}},
		{"an update of what is not there", "PUT", planetest.WidgetsPath + "/none", planetest.Widget("none", 2), nil, 404, "NotFound", []string{`widgets.example.com \"none\" not found`}},
		{"an update of another uid", "PUT", planetest.WidgetsPath + "/there", `{"metadata":{"name":"there","resourceVersion":"1","uid":"u"},"spec":{"size":2}}`, nil, 409, "Conflict", []string{"Precondition failed: UID in precondition: u"}},
		{"a patch of the uid", "PATCH", planetest.WidgetsPath + "/there", `{"metadata":{"uid":"u"}}`, merge, 422, "Invalid", []string{"metadata.uid", "field is immutable"}},
		{"a patch of the name", "PATCH", planetest.WidgetsPath + "/there", `{"metadata":{"name":"other"}}`, merge, 400, "BadRequest", []string{"the name of the object (other) does not match the name on the URL (there)"}},
		{"a patch that breaks the schema", "PATCH", planetest.WidgetsPath + "/there", `{"spec":{"size":-1}}`, merge, 422, "Invalid", []string{"spec.size"}},
		{"a patch that is no JSON", "PATCH", planetest.WidgetsPath + "/there", `{`, merge, 400, "BadRequest", []string{"invalid JSON patch"}},
		{"a JSON patch that is no list", "PATCH", planetest.WidgetsPath + "/there", `{}`, []string{"Content-Type", "application/json-patch+json"}, 400, "BadRequest", nil},
		{"a JSON patch with too much to do", "PATCH", planetest.WidgetsPath + "/there", "[" + strings.Repeat(`{"op":"test","path":"/kind","value":"Widget"},`, 10000) + `{"op":"test","path":"/kind","value":"Widget"}]`,
			[]string{"Content-Type", "application/json-patch+json"}, 413, "RequestEntityTooLarge", []string{"10000"}},
		{"a JSON patch that grows without bound", "PATCH", planetest.WidgetsPath + "/there", copies(),
			[]string{"Content-Type", "application/json-patch+json"}, 422, "", nil},
		{"a patch with an unknown field, strictly", "PATCH", planetest.WidgetsPath + "/there?fieldValidation=Strict", `{"spec":{"bogus":1}}`, merge, 422, "Invalid", []string{"patch: Invalid value", `strict decoding error: unknown field \"spec.bogus\"`}},
		{"a patch to labels of the wrong type", "PATCH", planetest.WidgetsPath + "/there", `{"metadata":{"labels":{"a":1}}}`, merge, 422, "Invalid", []string{"patch: Invalid value"}},
		{"a patch that takes the kind away", "PATCH", planetest.WidgetsPath + "/there", `{"kind":null}`, merge, 422, "Invalid", []string{"Object 'Kind' is missing"}},
		{"a strategic merge patch of the wrong type", "PATCH", "/api/v1/namespaces/default/configmaps/frozen", `{"data":{"n":5}}`,
			[]string{"Content-Type", "application/strategic-merge-patch+json"}, 422, "Invalid", []string{"patch: Invalid value: \\\"map[data:map[n:5]]\\\"", "cannot unmarshal number into Go struct field ConfigMap.data of type string"}},
		{"a patch that forces", "PATCH", planetest.WidgetsPath + "/there?force=true", `{}`, merge, 422, "Invalid", []string{"force: Forbidden: may not be specified for non-apply patch"}},
		{"a patch of no type", "PATCH", planetest.WidgetsPath + "/there", `{}`, []string{"Content-Type", "application/json"}, 415, "UnsupportedMediaType", []string{"application/json-patch+json"}},
		{"bad options and a bad type", "PUT", planetest.WidgetsPath + "/there?dryRun=No", "x", []string{"Content-Type", "text/plain"}, 422, "Invalid", []string{"dryRun"}},
		{"bad options and a bad type of a patch", "PATCH", planetest.WidgetsPath + "/there?dryRun=No", "x", []string{"Content-Type", "text/plain"}, 415, "UnsupportedMediaType", nil},
		{"bad options and a bad type of a delete", "DELETE", planetest.WidgetsPath + "/there?dryRun=No", "x", []string{"Content-Type", "text/plain"}, 415, "UnsupportedMediaType", nil},
		{"a patch that is no JSON, of nothing", "PATCH", planetest.WidgetsPath + "/none", "x", merge, 400, "BadRequest", []string{"invalid JSON patch"}},
		{"a merge patch that is a list", "PATCH", planetest.WidgetsPath + "/there", "[]", merge, 400, "BadRequest", []string{"error decoding patch: json: cannot unmarshal array"}},
		{"a patch that takes the resourceVersion", "PATCH", planetest.WidgetsPath + "/there", `{"metadata":{"resourceVersion":null}}`, merge, 422, "Invalid", []string{"must be specified for an update"}},
		{"a patch of the namespace", "PATCH", planetest.WidgetsPath + "/there", `{"metadata":{"namespace":"other"}}`, merge, 400, "BadRequest", []string{"does not match the namespace sent on the request"}},
		{"a delete in no known way", "DELETE", planetest.WidgetsPath + "/there?propagationPolicy=Sideways", "", nil, 422, "Invalid", []string{"propagationPolicy", "Foreground"}},
		{"delete options that are none", "DELETE", planetest.WidgetsPath + "/there", `{"kind":"Pod"}`, nil, 400, "BadRequest", nil},
		{"a grace period with something behind it", "DELETE", planetest.WidgetsPath + "/there?gracePeriodSeconds=5abc", "", nil, 400, "BadRequest", nil},
		{"two ways to deal with dependents", "DELETE", planetest.WidgetsPath + "/there?orphanDependents=true&propagationPolicy=Background", "", nil, 422, "Invalid", []string{"orphanDependents"}},
		{"a negative grace period that is no number", "DELETE", planetest.WidgetsPath + "/there?gracePeriodSeconds=x", "", nil, 400, "BadRequest", nil},

		{"a bad label selector", "GET", planetest.WidgetsPath + "?labelSelector=a%3D%3D%3Db", "", nil, 400, "BadRequest", []string{"unable to parse requirement"}},
		{"a bad field selector", "GET", planetest.WidgetsPath + "?fieldSelector=a", "", nil, 400, "BadRequest", []string{"invalid selector"}},
		{"a field that cannot be selected by", "GET", planetest.WidgetsPath + "?fieldSelector=spec.size%3D1", "", nil, 400, "BadRequest", []string{"field label not supported: spec.size"}},
		{"a bad continue token", "GET", planetest.WidgetsPath + "?continue=!", "", nil, 400, "BadRequest", []string{"continue key is not valid"}},
		{"a continue token with a resourceVersion", "GET", planetest.WidgetsPath + "?continue=x&resourceVersion=5&resourceVersionMatch=Exact", "", nil, 422, "Invalid", []string{"resourceVersionMatch is forbidden when continue is provided"}},
		{"a bad limit", "GET", planetest.WidgetsPath + "?limit=x", "", nil, 400, "BadRequest", nil},
		{"a bad resourceVersion", "GET", planetest.WidgetsPath + "?resourceVersion=x", "", nil, 400, "BadRequest", []string{"invalid resource version: resourceVersion: Invalid value"}},
		{"a bad resourceVersion of get", "GET", planetest.WidgetsPath + "/there?resourceVersion=-1", "", nil, 400, "BadRequest", []string{"invalid resource version: resourceVersion: Invalid value"}},
		{"a resourceVersion of the future", "GET", planetest.WidgetsPath + "?resourceVersion=999999", "", nil, 504, "Timeout", []string{"Too large resource version: 999999, current:", "ResourceVersionTooLarge"}},
		{"a bad resourceVersionMatch", "GET", planetest.WidgetsPath + "?resourceVersion=1&resourceVersionMatch=Close", "", nil, 422, "Invalid", []string{"resourceVersionMatch"}},
		{"an exact match of any", "GET", planetest.WidgetsPath + "?resourceVersion=0&resourceVersionMatch=Exact", "", nil, 422, "Invalid", []string{"resourceVersionMatch"}},
		{"a bad timeout", "GET", planetest.WidgetsPath + "?timeout=soon", "", nil, 400, "BadRequest", []string{"invalid timeout"}},
		{"a bad includeObject", "GET", planetest.WidgetsPath + "?includeObject=Some", "", []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}, 400, "BadRequest", []string{"Unable to convert to Table as requested: includeObject"}},

		{"a kind that is not served", "GET", "/apis/example.com/v1/namespaces/default/gadgets", "", nil, 404, "NotFound", []string{"the server could not find the requested resource"}},
		{"a version that is not served", "GET", "/apis/example.com/v9/namespaces/default/widgets", "", nil, 404, "NotFound", nil},
		{"a path that is not served", "GET", "/nothing", "", nil, 404, "NotFound", nil},
		{"a subresource that is not served", "GET", planetest.WidgetsPath + "/there/scale", "", nil, 404, "NotFound", nil},
		{"a namespaced kind without one", "GET", "/apis/example.com/v1/widgets/there", "", nil, 404, "NotFound", nil},
		{"a cluster's kind in a namespace", "GET", "/apis/example.com/v1/namespaces/default/plains", "", nil, 404, "NotFound", nil},
		{"a create at a name", "POST", planetest.WidgetsPath + "/there", planetest.Widget("there", 1), nil, 405, "MethodNotAllowed", nil},
		{"a create without a namespace", "POST", "/apis/example.com/v1/widgets", planetest.Widget("a", 1), nil, 404, "NotFound", nil},
		{"a create of a built-in kind without a namespace", "POST", "/api/v1/configmaps", `{}`, nil, 405, "MethodNotAllowed", nil},
		{"an update without a name", "PUT", planetest.WidgetsPath, planetest.Widget("there", 1), nil, 405, "MethodNotAllowed", nil},
		{"a delete of all namespaces", "DELETE", "/api/v1/namespaces", "", nil, 405, "MethodNotAllowed", nil},
		{"a delete of all there is, in all namespaces", "DELETE", "/apis/example.com/v1/widgets", "", nil, 404, "NotFound", nil},
		{"a delete of all of a built-in kind, in all namespaces", "DELETE", "/api/v1/configmaps", "", nil, 405, "MethodNotAllowed", nil},
		{"a post elsewhere", "POST", "/version", "{}", nil, 405, "MethodNotAllowed", nil},
		{"a method that is none", "BREW", planetest.WidgetsPath, "", nil, 405, "MethodNotAllowed", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := p.Do(tc.method, tc.path, tc.body, tc.header...)
			if a.Code != tc.code || a.Field("kind") != "Status" || tc.reason != "" && a.Field("reason") != tc.reason {
				t.Errorf("%.600s\nwant %d %s", a, tc.code, tc.reason)
			}
			for _, c := range tc.contains {
				if !strings.Contains(string(a.Body), c) {
					t.Errorf("%.600s\ndoes not contain %s", a, c)
				}
			}
			if tc.code == 422 && tc.reason == "Invalid" && a.Field("details", "causes") == nil {
				t.Errorf("no causes: %.600s", a)
			}
			if a.Header.Get("X-Stele-Stage") == "" {
				t.Error("the answer does not name its stage")
			}
		})
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// copies is a JSON patch of which each operation doubles the object.
func copies() string {
	var b strings.Builder
	b.WriteString(`[{"op":"add","path":"/spec/free","value":{"a":"` + strings.Repeat("x", 1000) + `"}}`)
	for i := range 40 {
		fmt.Fprintf(&b, `,{"op":"copy","from":"/spec/free","path":"/spec/free/b%d"}`, i)
	}
	return b.String() + "]"
}

// bomb is YAML that would expand to gigabytes.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return b.String()
}

func TestUnknownFieldsAreDroppedWithAWarning(t *testing.T) {
	p := planetest.NewPlane(t)
	body := func(name string) string {
		return `{"metadata":{"name":"` + name + `","foo":1},"spec":{"size":1,"size":2,"bar":{"x":1},"ports":[{"name":"a","port":1,"baz":2}],"free":{"kept":true}},"more":1}`
	}
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, body("warned"))
	got := strings.Join(a.Header.Values("Warning"), "\n")
	for _, want := range []string{`unknown field \"metadata.foo\"`, `unknown field \"spec.bar\"`, `unknown field \"spec.ports[0].baz\"`, `unknown field \"more\"`, `duplicate field \"spec.size\"`} {
		if !strings.Contains(got, want) {
			t.Errorf("warnings\n%s\nlack %s", got, want)
		}
	}
	if strings.Contains(string(a.Body), "bar") || strings.Contains(string(a.Body), "baz") || a.Field("spec", "free", "kept") != true || a.Field("spec", "size") != 2.0 {
		t.Errorf("created %s", a)
	}
	if a := p.Must(t, 201, "POST", planetest.WidgetsPath+"?fieldValidation=Ignore", body("ignored")); len(a.Header.Values("Warning")) > 0 || strings.Contains(string(a.Body), "bar") {
		t.Errorf("with Ignore: %v %s", a.Header.Values("Warning"), a)
	}
}

// Requests that are refused for their size must not cost what they claim.
func TestRefusedBodiesDoNotCostMemory(t *testing.T) {
	p := planetest.NewPlane(t)
	body := strings.Repeat(" ", 16<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 8 {
		p.Must(t, 413, "POST", planetest.WidgetsPath, body)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 16<<20 {
		t.Errorf("8 refused bodies of 16 MiB allocated %d MiB", grown>>20)
	}
}
