package core_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/run/plane/planetest"
)

// Whatever headers and bodies are sent: it is answered, in the form that the answer says it is in, never
// with a 500; and what is refused changes nothing.
func FuzzHeaders(f *testing.F) {
	configMap := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"},"data":{"a":"b"}}`)
	for i, mediaType := range []string{"application/json", "application/yaml", planetest.ProtobufType, "application/cbor"} {
		body, err := wire.Encode(mediaType, configMap)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), mediaType, mediaType+";q=0.9, */*;q=0.1", "gzip", body)
	}
	f.Add(uint8(4), "application/json; charset=utf-8", "application/json;as=Table;v=v1;g=meta.k8s.io, "+planetest.ProtobufType+";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "", []byte(`{"dryRun":["All"]}`))
	f.Add(uint8(5), "x/", "application/*;q=1.5;pretty=1, ,;;=", "gzip;q=0, identity", []byte("x"))
	f.Add(uint8(1), "", "application/cbor-seq", "*", []byte(nil))
	f.Fuzz(func(t *testing.T, op uint8, contentType, accept, encoding string, body []byte) {
		for _, h := range []string{contentType, accept, encoding} {
			if strings.ContainsFunc(h, func(c rune) bool { return c < ' ' || c > '~' }) {
				return // no header
			}
		}
		p := planetest.NewPlane(t)
		p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"there"}}`)
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("there", 1))
		before := p.Committer.Tip().Revision()
		targets := []struct{ method, path string }{
			{"POST", planetest.ConfigMapsPath}, {"PUT", planetest.ConfigMapsPath + "/there"}, {"DELETE", planetest.ConfigMapsPath + "/there"}, {"PATCH", planetest.ConfigMapsPath + "/there"},
			{"GET", planetest.ConfigMapsPath}, {"GET", planetest.WidgetsPath + "/there"}, {"POST", planetest.WidgetsPath}, {"DELETE", planetest.WidgetsPath + "/there"},
			{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}, {"GET", "/apis"}, {"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"},
			{"POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles"}, {"GET", planetest.WidgetsPath + "?watch=1&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name%3Dnone"},
		}
		target := targets[int(op)%len(targets)]
		q := planetest.Request(target.method, target.path, "", "Content-Type", contentType, "Accept", accept, "Accept-Encoding", encoding)
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if strings.Contains(target.path, "watch") {
			p.Drain() // at once
		}
		a := p.Serve(q)
		if a.Code >= 400 && p.Committer.Tip().Revision() != before {
			t.Errorf("what was refused is in the log: %s", a)
		}
		if a.Code >= 500 {
			t.Errorf("%s", a)
		}
		text := a.Body
		if a.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if text, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		mediaType, parameters, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
		switch {
		case a.Code == http.StatusNotModified || strings.Contains(parameters, "stream=watch") || strings.Contains(target.path, "watch") && a.Code == 200:
		case mediaType == negotiate.JSON:
			if !json.Valid(text) {
				t.Errorf("no JSON: %q", text)
			}
		case mediaType == negotiate.YAML:
			if _, err := yaml.YAMLToJSON(text); err != nil {
				t.Errorf("no YAML: %v: %q", err, text)
			}
		case mediaType == negotiate.Protobuf:
			if !bytes.HasPrefix(text, []byte("k8s\x00")) {
				t.Errorf("no Protocol Buffers: %q", text)
			}
		case mediaType == negotiate.CBOR:
			if _, _, err := wire.Decode(negotiate.CBOR, text, schema.GroupVersionKind{}); err != nil {
				t.Errorf("no CBOR: %v: %q", err, text)
			}
		default:
			t.Errorf("answered in %q", mediaType)
		}
	})
}
