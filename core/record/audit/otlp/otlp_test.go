package otlp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/core/record/audit/otlp"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

func TestRecordsAreExported(t *testing.T) {
	var got logspb.LogsData
	var request *http.Request
	answer := []byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request = r
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil {
			t.Error(err)
		}
		w.Write(answer)
	}))
	defer server.Close()
	environment := map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a=1,b=x%20y", "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "Authorization=Basic%20abc"}
	o := otlp.Options{Endpoint: server.URL + "/base", Instance: "host"}
	if err := o.FromEnvironment(func(name string) string { return environment[name] }); err != nil {
		t.Fatal(err)
	}
	sink, err := otlp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(7, 0)
	e := &eventlog.Event{Time: at, Meta: &logpb.Metadata{Actor: &logpb.Actor{User: "alice"}, Request: &logpb.Request{AuditId: "id", Verb: "get", Status: 403}, Object: &logpb.Object{Resource: "pods"}}}
	records := []audit.Record{{Line: []byte("{\"a\":1}\n"), Event: e}, {Line: []byte("{}\n")}}
	if err := sink.Send(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	if request.URL.Path != "/base/v1/logs" || request.Header.Get("Authorization") != "Basic abc" || request.Header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("%s %v", request.URL, request.Header)
	}
	logs := got.ResourceLogs[0].ScopeLogs[0].LogRecords
	if len(logs) != 2 || logs[0].Body.GetStringValue() != `{"a":1}` || logs[0].TimeUnixNano != uint64(at.UnixNano()) || logs[0].SeverityText != "WARN" {
		t.Errorf("got %v", logs)
	}
	attributes := map[string]string{}
	for _, a := range logs[0].Attributes {
		attributes[a.Key] = a.Value.GetStringValue()
	}
	if attributes["user.name"] != "alice" || attributes["k8s.audit.id"] != "id" || attributes["k8s.audit.resource"] != "pods" {
		t.Errorf("attributes %v", attributes)
	}
	answer = []byte{0x0a, 0x07, 0x08, 0x01, 0x12, 0x03, 'o', 'l', 'd'} // partial success: one is rejected
	partly := (*audit.PartlyRefused)(nil)
	if err := sink.Send(t.Context(), records); !errors.As(err, &partly) || partly.Records != 1 || partly.Answer != "old" {
		t.Errorf("after a partial success: %v", err)
	}
	for name, body := range map[string][]byte{"an empty partial success": {0x0a, 0x00}, "a warning": {0x0a, 0x05, 0x12, 0x03, 'o', 'l', 'd'}} {
		answer = body
		if err := sink.Send(t.Context(), records); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	answer = []byte{0x0a, 0x01, 0x08}
	if err := sink.Send(t.Context(), records); err == nil || errors.As(err, &partly) {
		t.Errorf("after half an answer: %v", err)
	}
	answer = []byte("<html>a page of a proxy</html>")
	if err := sink.Send(t.Context(), records); err == nil || !strings.Contains(err.Error(), "not one of OTLP") {
		t.Errorf("after another answer: %v", err)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	if _, err := otlp.New(otlp.Options{Endpoint: "collector:4318"}); err == nil {
		t.Error("an endpoint without a scheme is accepted")
	}
	for variable, value := range map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "a", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/missing", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/missing"} {
		err := new(otlp.Options).FromEnvironment(func(name string) string {
			if name == variable {
				return value
			}
			return ""
		})
		if err == nil || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s: %v", variable, err)
		}
	}
}
