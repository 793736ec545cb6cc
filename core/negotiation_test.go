package core_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/run/plane/planetest"
)

// What an Accept header comes to, by kube-apiserver's rules.
func TestNegotiation(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"a"},"data":{"x":"y"}}`)
	p.Drain() // watches end at once
	const watching = "?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dnone"
	const notAccepted = "only the following media types are accepted: "
	for _, tc := range []struct {
		path, accept string
		code         int
		want         string // the Content-Type, or of errors what they say
	}{
		{planetest.ConfigMapsPath + "/a", "", 200, "application/json"},
		{planetest.ConfigMapsPath + "/a", "*/*", 200, "application/json"},
		{planetest.ConfigMapsPath + "/a", "application/*", 200, "application/json"},
		{planetest.ConfigMapsPath + "/a", "text/html, */*;q=0.1", 200, "application/json"},
		{planetest.ConfigMapsPath + "/a", "application/json;q=0.5, application/yaml", 200, "application/yaml"},
		{planetest.ConfigMapsPath + "/a", "application/yaml;q=0.5, application/vnd.kubernetes.protobuf;q=0.9, application/json;q=0.8", 200, planetest.ProtobufType},
		{planetest.ConfigMapsPath + "/a", "application/json;charset=utf-8", 200, "application/json"},
		{planetest.ConfigMapsPath + "/a", "application/json;stream=watch", 200, "application/json"},
		{planetest.ConfigMapsPath + "/a", "application/json;stream=other", 406, notAccepted + planetest.AcceptedTypes},
		{planetest.ConfigMapsPath + "/a", "application/json;sv=v1", 200, "application/json"},
		{planetest.ConfigMapsPath + "/a", "application/json;sv=v2", 406, notAccepted + planetest.AcceptedTypes},
		{planetest.ConfigMapsPath + "/a", "application/yaml;stream=watch", 406, notAccepted + planetest.AcceptedTypes},
		{planetest.ConfigMapsPath + "/a", "application/cbor", 200, "application/cbor"},
		{planetest.ConfigMapsPath + "/a", "text/plain", 406, notAccepted + planetest.AcceptedTypes},
		{planetest.ConfigMapsPath + "/a", "nonsense", 406, notAccepted + planetest.AcceptedTypes},
		{planetest.ConfigMapsPath, planetest.ProtobufType, 200, planetest.ProtobufType},
		{planetest.ConfigMapsPath, planetest.ProtobufType + planetest.AsTable, 406, notAccepted + planetest.AcceptedTypes},
		{planetest.ConfigMapsPath, planetest.ProtobufType + planetest.AsTable + ", " + planetest.ProtobufType, 200, planetest.ProtobufType},
		{planetest.ConfigMapsPath, "application/json" + planetest.AsTable + ", application/json", 200, "application/json"},
		{planetest.ConfigMapsPath, "application/yaml" + planetest.AsTable, 200, "application/yaml"},
		{planetest.ConfigMapsPath, "application/cbor" + planetest.AsTable, 406, notAccepted + planetest.AcceptedTypes},
		{planetest.ConfigMapsPath, "application/json;as=Table;v=v2;g=meta.k8s.io", 406, notAccepted + planetest.AcceptedTypes},
		{planetest.ConfigMapsPath, "application/json;as=Other;v=v1;g=meta.k8s.io, application/json", 200, "application/json"},
		{planetest.ConfigMapsPath, "application/json" + planetest.AsPartial, 406, "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"},
		{planetest.ConfigMapsPath + "/a", "application/json" + planetest.AsPartials, 406, "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)"},
		{planetest.WidgetsPath, "application/json" + planetest.AsPartial, 406, "you requested PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)"},
		{planetest.WidgetsPath, planetest.ProtobufType + planetest.AsPartials, 200, planetest.ProtobufType},
		{planetest.WidgetsPath + "/a", planetest.ProtobufType + planetest.AsPartial, 200, planetest.ProtobufType},
		{planetest.WidgetsPath, planetest.ProtobufType + ";as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io", 200, planetest.ProtobufType},
		{planetest.WidgetsPath + "/a", planetest.ProtobufType, 406, notAccepted + planetest.AcceptedTypes},
		{planetest.WidgetsPath + "/none", planetest.ProtobufType, 406, notAccepted + planetest.AcceptedTypes}, // before it is looked for
		{planetest.WidgetsPath + "/none", planetest.ProtobufType + planetest.AsPartial, 404, `widgets.example.com "none" not found`},
		{planetest.WidgetsPath, planetest.ProtobufType + ", application/json", 200, "application/json"},
		{planetest.WidgetsPath, "application/cbor", 200, "application/cbor"},
		{planetest.WidgetsPath + watching, planetest.ProtobufType, 406, notAccepted + planetest.AcceptedTypes},
		{planetest.WidgetsPath + watching, planetest.ProtobufType + planetest.AsPartial, 200, planetest.ProtobufType + ";stream=watch"},
		{planetest.ConfigMapsPath + watching, planetest.ProtobufType + ";stream=watch, application/json", 200, planetest.ProtobufType + ";stream=watch"},
		{planetest.ConfigMapsPath + watching, "application/cbor", 200, "application/cbor-seq"},
		{planetest.ConfigMapsPath + watching, "application/yaml, application/json", 406, notAccepted + "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles", planetest.ProtobufType, 200, planetest.ProtobufType},
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", planetest.ProtobufType, 200, planetest.ProtobufType},
		{"/apis/log.stele.dev/v1/changes", planetest.ProtobufType, 406, notAccepted + planetest.AcceptedTypes},
		{"/apis/policy.stele.dev/v1/policies", planetest.ProtobufType, 406, notAccepted + planetest.AcceptedTypes},
		{"/api", planetest.ProtobufType, 200, planetest.ProtobufType},
		{"/api/v1", planetest.ProtobufType, 200, planetest.ProtobufType},
		{"/apis", "application/cbor", 200, "application/cbor"},
		{"/apis", "application/yaml", 200, "application/yaml"},
		{"/apis", "text/html", 406, notAccepted + planetest.AcceptedTypes},
		{"/apis", planetest.ProtobufType + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", 200, planetest.ProtobufType + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
		{"/apis", "application/json, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", 200, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
		{"/version", "text/html", 200, "application/json"},
	} {
		header := []string{"Accept", tc.accept}
		a := p.Do("GET", tc.path, "", header...)
		if a.Code != tc.code {
			t.Errorf("%s as %q: %s, want %d", tc.path, tc.accept, a, tc.code)
			continue
		}
		got := a.Header.Get("Content-Type")
		if a.Code >= 400 {
			got = statusOf(t, a).Message
		}
		if got != tc.want {
			t.Errorf("%s as %q: %q, want %q", tc.path, tc.accept, got, tc.want)
		}
	}
}

// statusOf decodes an error in whatever form it came.
func statusOf(t *testing.T, a planetest.Answer) *metav1.Status {
	t.Helper()
	s := &metav1.Status{}
	var err error
	switch a.Header.Get("Content-Type") {
	case planetest.ProtobufType:
		_, _, err = protobuf.NewSerializer(gotypes.Scheme, gotypes.Scheme).Decode(a.Body, &schema.GroupVersionKind{}, s)
	default:
		err = yaml.Unmarshal(a.Body, s)
	}
	if err != nil || s.Kind != "Status" || int(s.Code) != a.Code {
		t.Errorf("no Status: %v, %s", err, a)
	}
	return s
}

// An error comes in the form that is wanted, if it can; else as JSON.
func TestErrorsAreNegotiated(t *testing.T) {
	p := planetest.NewPlane(t)
	for accept, want := range map[string]string{
		"":                     "application/json",
		planetest.ProtobufType: planetest.ProtobufType,
		"application/yaml":     "application/yaml",
		"text/html":            "application/json",
		planetest.ProtobufType + planetest.AsPartial:                          "application/json",
		"application/json" + planetest.AsTable + "," + planetest.ProtobufType: planetest.ProtobufType,
	} {
		for _, token := range []string{"admin-token", "nobody-token", "unknown"} {
			a := p.Do("GET", planetest.ConfigMapsPath+"/none", "", "Accept", accept, "Authorization", "Bearer "+token)
			if got := a.Header.Get("Content-Type"); a.Code < 401 || got != want {
				t.Errorf("%s as %q: %d in %q, want %q", token, accept, a.Code, got, want)
			}
			statusOf(t, a)
		}
		a := p.Do("GET", planetest.ConfigMapsPath+"/none", "", "Accept", accept, "Authorization", "Bearer nobody-token", "Impersonate-User", "eddie")
		if got := a.Header.Get("Content-Type"); a.Code != 403 || got != want || !strings.Contains(statusOf(t, a).Message, "cannot impersonate") {
			t.Errorf("impersonation as %q: %d in %q: %s", accept, a.Code, got, a)
		}
	}
}

// An answer that cannot be had is refused before a policy is in force.
func TestPoliciesAreNoProtobuf(t *testing.T) {
	p := planetest.NewPlane(t)
	before := p.Committer.Tip().Revision()
	body := planetest.PolicyBody(t, strings.Replace(planetest.Bundle, `"red" | "green"`, `"red"`, 1), nil)
	for path, body := range map[string]string{planetest.PoliciesPath: body, planetest.ExplanationsPath: `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"get","path":"/version"}}`} {
		if a := p.Do("POST", path, body, "Accept", planetest.ProtobufType); a.Code != 406 || p.Committer.Tip().Revision() != before {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// What is served is told in every form, and means the same.
func TestDiscoveryAsProtobuf(t *testing.T) {
	p := planetest.NewPlane(t)
	for path, into := range map[string]runtime.Object{
		"/api": &metav1.APIVersions{}, "/api/v1": &metav1.APIResourceList{}, "/apis": &metav1.APIGroupList{}, "/apis/example.com": &metav1.APIGroup{}, "/apis/example.com/v1": &metav1.APIResourceList{},
	} {
		want := into.DeepCopyObject()
		if err := yaml.Unmarshal(p.Must(t, 200, "GET", path, "").Body, want); err != nil {
			t.Fatal(err)
		}
		a := p.Must(t, 200, "GET", path, "", "Accept", planetest.ProtobufType)
		_, _, err := protobuf.NewSerializer(gotypes.Scheme, gotypes.Scheme).Decode(a.Body, nil, into)
		want.GetObjectKind().SetGroupVersionKind(into.GetObjectKind().GroupVersionKind()) // /api has no version as JSON
		if err != nil || !apiequality.Semantic.DeepEqual(into, want) {
			t.Errorf("%s: %v\n%v, want\n%v", path, err, into, want)
		}
	}
}

// What bodies are taken, and in which order upstream finds out what is wrong with a write.
func TestBodies(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("there", 1))
	p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"there"}}`)
	before := p.Committer.Tip().Revision()
	const unknown = "the body of the request was in an unknown format - accepted media types include: "
	large := strings.Repeat(" ", 3<<20) + "{}"
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'l'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	for _, tc := range []struct {
		name, method, path, body string
		header                   []string
		code                     int
		want                     string
	}{
		{"text", "POST", planetest.WidgetsPath, "x", []string{"Content-Type", "text/plain"}, 415, unknown + planetest.AcceptedTypes},
		{"no type at all", "POST", planetest.WidgetsPath, "x", []string{"Content-Type", "nonsense/"}, 415, unknown + planetest.AcceptedTypes},
		{"406 comes before 415", "POST", planetest.WidgetsPath, "x", []string{"Content-Type", "text/plain", "Accept", "text/html"}, 406, "only the following media types are accepted: " + planetest.AcceptedTypes},
		{"415 comes before 406, of a patch", "PATCH", planetest.WidgetsPath + "/there", "x", []string{"Content-Type", "text/plain", "Accept", "text/html"}, 415, "accepted media types include: application/json-patch+json, application/merge-patch+json"},
		{"415 comes before 413, of a create", "POST", planetest.WidgetsPath, large, []string{"Content-Type", "text/plain"}, 415, unknown + planetest.AcceptedTypes},
		{"413 comes before 415, of an update", "PUT", planetest.WidgetsPath + "/there", large, []string{"Content-Type", "text/plain"}, 413, "Request entity too large: limit is 3145728"},
		{"403 comes before all of them", "POST", planetest.WidgetsPath, large, []string{"Content-Type", "text/plain", "Authorization", "Bearer nobody-token"}, 403, "cannot create resource"},
		{"400 comes before 415, of an update", "PUT", planetest.WidgetsPath + "/there?dryRun=Some", "x", []string{"Content-Type", "text/plain"}, 422, "dryRun"},
		{"options of a type that is unknown", "DELETE", planetest.WidgetsPath + "/there", "x", []string{"Content-Type", "text/plain"}, 415, unknown + planetest.AcceptedTypes},
		{"an empty protobuf", "POST", planetest.ConfigMapsPath, "k8s\x00", []string{"Content-Type", planetest.ProtobufType}, 400, "empty body"},
		{"a protobuf of absurd length", "POST", planetest.ConfigMapsPath, "k8s\x00\x0a\xff\xff\xff\xff\x7f", []string{"Content-Type", planetest.ProtobufType}, 400, ""},
		{"a protobuf of another kind", "POST", planetest.ConfigMapsPath, string(encodeProtobuf(t, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Odd", APIVersion: "odd.io/v1"}})), []string{"Content-Type", planetest.ProtobufType}, 400, `Odd in version "v1" cannot be handled as a ConfigMap: no kind "Odd" is registered`},
		{"a protobuf of a custom kind", "POST", planetest.WidgetsPath, string(encodeProtobuf(t, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Widget", APIVersion: "example.com/v1"}})), []string{"Content-Type", planetest.ProtobufType}, 400,
			`Widget in version "v1" cannot be handled as a Widget: object *unstructured.Unstructured does not implement the protobuf marshalling interface`},
		{"CBOR that ends early", "POST", planetest.WidgetsPath, "\xa1\x64kind", []string{"Content-Type", "application/cbor"}, 400, "unable to determine group/version/kind"},
		{"CBOR that is no map", "POST", planetest.WidgetsPath, "\x83\x01\x02\x03", []string{"Content-Type", "application/cbor"}, 400, "unable to determine group/version/kind"},
		{"CBOR that says a field twice", "POST", planetest.WidgetsPath, "\xa2\x41a\x01\x41a\x02", []string{"Content-Type", "application/cbor"}, 400, "duplicate"},
		{"CBOR that is deep", "POST", planetest.WidgetsPath, "\xa1\x41a" + strings.Repeat("\x81", 20000) + "\x01", []string{"Content-Type", "application/cbor"}, 400, "exceeded"},
		{"CBOR of absurd length", "POST", planetest.WidgetsPath, "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", []string{"Content-Type", "application/cbor"}, 400, ""},
		{"YAML that multiplies", "POST", planetest.WidgetsPath, bomb, []string{"Content-Type", "application/yaml"}, 400, "excessive aliasing"},
		{"JSON that is deep", "POST", planetest.WidgetsPath, `{"a":` + strings.Repeat("[", 20000), []string{"Content-Type", "application/json"}, 400, ""},
		{"a body that is compressed", "POST", planetest.WidgetsPath, "\x1f\x8b\x08\x00", []string{"Content-Encoding", "gzip"}, 400, "(1f8b0800)"}, // which nobody looks at
	} {
		a := p.Do(tc.method, tc.path, tc.body, tc.header...)
		if s := statusOf(t, a); a.Code != tc.code || !strings.Contains(s.Message, tc.want) {
			t.Errorf("%s: %s, want %d %q", tc.name, a, tc.code, tc.want)
		}
	}
	if p.Committer.Tip().Revision() != before {
		t.Error("what was refused is in the log")
	}
}

func encodeProtobuf(t *testing.T, s *metav1.Status) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := protobuf.NewSerializer(gotypes.Scheme, gotypes.Scheme).Encode(s, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A definition in protobuf is refused before it is decoded if its messages nest so deeply that decoding would exhaust the stack. Elsewhere it is not
// even looked at.
func TestADeepDefinitionIsNotFollowed(t *testing.T) {
	p := planetest.NewPlane(t)
	// metadata, and spec.versions.schema.openAPIV3Schema.not.not.not..., written from its end
	deep := make([]byte, 3<<20-1<<10)
	at := len(deep)
	within := func(field ...byte) {
		length := binary.AppendUvarint(nil, uint64(len(deep)-at))
		at -= copy(deep[at-len(length):], length)
		at -= copy(deep[at-len(field):], field)
	}
	for at > 1<<10 {
		within(0xe2, 0x01)
	}
	within(0x0a)
	within(0x22)
	within(0x3a)
	within(0x12)
	metadata := []byte("\x0a\x08\x0a\x06abcdef")
	at -= copy(deep[at-len(metadata):], metadata)
	var body bytes.Buffer
	if err := protobuf.NewSerializer(gotypes.Scheme, gotypes.Scheme).Encode(&runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: "CustomResourceDefinition", APIVersion: "apiextensions.k8s.io/v1"}, Raw: deep[at:]}, &body); err != nil {
		t.Fatal(err)
	}
	a := p.Do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body.String(), "Content-Type", planetest.ProtobufType)
	if a.Code != 400 || !strings.Contains(statusOf(t, a).Message, "messages nest more than 500 levels") {
		t.Errorf("%s", a)
	}
	for _, path := range []string{planetest.ConfigMapsPath, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"} {
		if a := p.Do("POST", path, body.String(), "Content-Type", planetest.ProtobufType); a.Code != 400 {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// Long answers are compressed for who asks for that, whatever their form; streams are not.
func TestLongAnswersAreCompressed(t *testing.T) {
	p := planetest.NewPlane(t)
	for i := range 200 {
		p.Must(t, 201, "POST", planetest.ConfigMapsPath, fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"x":%q}}`, i, strings.Repeat("y", 1000)))
	}
	for _, accept := range []string{"application/json", "application/yaml", planetest.ProtobufType, "application/cbor", "application/json;pretty=1"} {
		plain := p.Must(t, 200, "GET", planetest.ConfigMapsPath, "", "Accept", accept)
		length := ""
		if accept == "application/json" || accept == planetest.ProtobufType { // others are written while they are encoded
			length = fmt.Sprint(len(plain.Body))
		}
		if plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Content-Length") != length {
			t.Errorf("%s: %v of %d bytes", accept, plain.Header, len(plain.Body))
		}
		compressed := p.Must(t, 200, "GET", planetest.ConfigMapsPath, "", "Accept", accept, "Accept-Encoding", "br, gzip")
		if h := compressed.Header; h.Get("Content-Encoding") != "gzip" || h.Get("Vary") != "Accept-Encoding" || h.Get("Content-Length") != "" {
			t.Fatalf("%s: %v", accept, h)
		}
		z, err := gzip.NewReader(bytes.NewReader(compressed.Body))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(z); err != nil || len(text) != len(plain.Body) || accept != "application/cbor" && !bytes.Equal(text, plain.Body) {
			t.Errorf("%s: %v, %d bytes, want %d", accept, err, len(text), len(plain.Body))
		}
	}
	p.Drain() // watches end at once
	for _, path := range []string{planetest.ConfigMapsPath + "?limit=50", planetest.ConfigMapsPath + "/c1", planetest.ConfigMapsPath + "?watch=1"} {
		if a := p.Must(t, 200, "GET", path, "", "Accept-Encoding", "gzip"); a.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is compressed", path)
		}
	}
	names := "application/json" + planetest.AsPartials
	if a := p.Must(t, 200, "GET", planetest.ConfigMapsPath, "", "Accept", names, "Accept-Encoding", "gzip"); a.Header.Get("Content-Encoding") != "" || a.Header.Get("Content-Length") != fmt.Sprint(len(a.Body)) {
		t.Errorf("a short list of metadata: %v", a.Header)
	}
}

// Methods that nobody has, and what is said of them only to those who may ask.
func TestOddMethods(t *testing.T) {
	p := planetest.NewPlane(t)
	for _, method := range []string{"OPTIONS", "TRACE", "CONNECTED"} {
		for _, path := range []string{"/", "/version", "/apis", planetest.ConfigMapsPath, planetest.WidgetsPath, planetest.WidgetsPath + "/a"} {
			if a := p.Do(method, path, ""); a.Code != 405 || statusOf(t, a).Reason != metav1.StatusReasonMethodNotAllowed {
				t.Errorf("%s %s: %s", method, path, a)
			}
			if a := p.Do(method, path, "", "Authorization", ""); a.Code != 401 && a.Code != 403 {
				t.Errorf("%s %s of nobody: %s", method, path, a)
			}
		}
	}
}

// What every answer says of itself.
func TestHeadersOfAllAnswers(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Drain() // watches end at once
	id := strings.Repeat("i", 100)
	for _, path := range []string{"/version", "/apis", planetest.WidgetsPath, planetest.WidgetsPath + "/none", "/nowhere", planetest.WidgetsPath + "?watch=1"} {
		h := p.Do("GET", path, "", "Audit-ID", id).Header
		if h.Get("Audit-Id") != id || h.Get("Cache-Control") != "no-cache, private" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if a := p.Do("GET", planetest.WidgetsPath, "", "Authorization", "Bearer nobody-token"); a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a refusal: %v", a.Header)
	}
}

// The query says how long a request may take.
func TestTimeouts(t *testing.T) {
	p := planetest.NewPlane(t)
	for _, tc := range []struct {
		timeout string
		code    int
		want    string
	}{
		{"", 200, ""}, {"0s", 200, ""}, {"10s", 200, ""}, {"24h", 200, ""}, {"-1s", 200, ""},
		{"x", 400, `invalid timeout specified in the request URL - time: invalid duration "x"`},
		{"5", 400, `invalid timeout specified in the request URL - time: missing unit in duration "5"`},
		{"1ns", 504, "Timeout: request did not complete within the allotted timeout"},
	} {
		for _, path := range []string{"/version", planetest.ConfigMapsPath, planetest.WidgetsPath} {
			a := p.Do("GET", path+"?timeout="+tc.timeout, "", "User-Agent", "test")
			if a.Code != tc.code || a.Code != 200 && statusOf(t, a).Message != tc.want {
				t.Errorf("%s: timeout %q: %s, want %d %s", path, tc.timeout, a, tc.code, tc.want)
			}
		}
	}
	p.Must(t, 401, "GET", "/apis?timeout=10s", "", "Authorization", "Bearer x")
	p.Must(t, 400, "GET", "/apis?timeout=x", "", "Authorization", "Bearer x") // nobody is asked for that
	p.Drain()
	p.Must(t, 200, "GET", planetest.WidgetsPath+"?watch=1&timeout=x", "") // a watch has another
}

// Whatever the version of HTTP, and however the body comes.
func TestBodiesOverHTTP(t *testing.T) {
	for _, proto := range []int{1, 2} {
		p := planetest.NewPlane(t)
		config := clientConfig(t, p, "application/json", proto)
		client := &http.Client{Transport: transportOf(t, config)}
		send := func(method, path string, body io.Reader, header ...string) (int, string) {
			q, err := http.NewRequest(method, config.Host+path, body)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer admin-token")
			for i := 0; i < len(header); i += 2 {
				q.Header.Set(header[i], header[i+1])
			}
			a, err := client.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			text, err := io.ReadAll(a.Body)
			if err != nil {
				t.Fatal(err)
			}
			return a.StatusCode, string(text)
		}
		unknownLength := func(text string) io.Reader { return struct{ io.Reader }{strings.NewReader(text)} }
		if code, text := send("POST", planetest.WidgetsPath, unknownLength(planetest.Widget("a", 1)), "Content-Type", "application/json"); code != 201 {
			t.Errorf("HTTP/%d, in chunks: %d %s", proto, code, text)
		}
		if code, text := send("POST", planetest.WidgetsPath, strings.NewReader(planetest.Widget("b", 1)), "Expect", "100-continue"); code != 201 {
			t.Errorf("HTTP/%d, 100-continue: %d %s", proto, code, text)
		}
		if code, text := send("POST", planetest.WidgetsPath, unknownLength(strings.Repeat(" ", 3<<20+1))); code != 413 {
			t.Errorf("HTTP/%d, too large in chunks: %d %s", proto, code, text)
		}
		if code, text := send("POST", planetest.WidgetsPath, strings.NewReader(strings.Repeat(" ", 3<<20+1)), "Expect", "100-continue"); code != 413 {
			t.Errorf("HTTP/%d, too large: %d %s", proto, code, text)
		}
		if code, text := send("HEAD", planetest.WidgetsPath, nil); code != 200 || text != "" {
			t.Errorf("HTTP/%d, HEAD: %d %s", proto, code, text)
		}
		for path, want := range map[string]int{"//api//v1/namespaces/default": 404, "/api/v1/namespaces/default/": 200, "/apis/": 200, "/version/": 200} {
			if code, text := send("GET", path, nil); code != want {
				t.Errorf("HTTP/%d, %s: %d %s", proto, path, code, text)
			}
		}
	}
}
