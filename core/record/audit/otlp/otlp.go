// Package otlp sends audit lines to a collector of OpenTelemetry, as log records over OTLP/HTTP with Protocol Buffers. The
// body of a record is the line; attributes repeat what is often searched for.
package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/core/record/audit/webhook"
	"stele.dev/stele/eventlog/logpb"
)

// Options for [New].
type Options struct {
	// Endpoint is the URL of the collector; records are sent to the path v1/logs below it.
	Endpoint string
	// Header is sent with every request.
	Header http.Header
	// TLS says whom to trust, and how to authenticate.
	TLS *tls.Config
	// Instance is the attribute service.instance.id.
	Instance string
}

// FromEnvironment adds what the environment variables of OpenTelemetry say: OTEL_EXPORTER_OTLP_HEADERS,
// OTEL_EXPORTER_OTLP_CERTIFICATE, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY, and those with
// LOGS_ after OTLP_, which win.
func (o *Options) FromEnvironment(getenv func(string) string) error {
	get := func(name string) string {
		if v := getenv("OTEL_EXPORTER_OTLP_LOGS_" + name); v != "" {
			return v
		}
		return getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	o.Header = http.Header{}
	for pair := range strings.SplitSeq(get("HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		if strings.TrimSpace(pair) == "" {
			continue
		}
		value, err := url.QueryUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return errors.New("OTEL_EXPORTER_OTLP_HEADERS: want name=value, separated by commas")
		}
		o.Header.Set(strings.TrimSpace(name), value)
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if file := get("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate in PEM", file)
		}
	}
	certificate, key := get("CLIENT_CERTIFICATE"), get("CLIENT_KEY")
	if certificate == "" && key == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY: %w", err)
	}
	o.TLS.Certificates = []tls.Certificate{pair}
	return nil
}

// Sink is a collector. It is safe for concurrent use.
type Sink struct {
	o      Options
	url    string
	client *http.Client
}

// New returns the sink of a collector.
func New(o Options) (*Sink, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not an http or https URL", o.Endpoint)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = o.TLS
	return &Sink{o, u.JoinPath("v1", "logs").String(), webhook.WithoutGets(&http.Client{Transport: transport})}, nil
}

// Name returns the name of the sink.
func (s *Sink) Name() string { return "otlp" }

// Send sends the records. The error is an [audit.PartlyRefused] if the collector rejects some of them and takes the others.
func (s *Sink) Send(ctx context.Context, records []audit.Record) error {
	// The bytes of LogsData are those of an ExportLogsServiceRequest, whose package needs gRPC.
	body, err := proto.Marshal(&logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
		Resource:  &resourcepb.Resource{Attributes: []*commonpb.KeyValue{text("service.name", "stele"), text("service.instance.id", s.o.Instance)}},
		ScopeLogs: []*logspb.ScopeLogs{{Scope: &commonpb.InstrumentationScope{Name: "audit.k8s.io/v1"}, LogRecords: logRecords(records)}},
	}}})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, values := range s.o.Header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	var refused *audit.PartlyRefused
	if err := webhook.Do(s.client, request, func(body []byte) (err error) { refused, err = readAnswer(body); return err }); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	return nil
}

func logRecords(records []audit.Record) []*logspb.LogRecord {
	now := uint64(time.Now().UnixNano())
	list := make([]*logspb.LogRecord, len(records))
	for i, r := range records {
		x := &logspb.LogRecord{
			ObservedTimeUnixNano: now, SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO", EventName: "audit.k8s.io.event",
			Body: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: strings.TrimSuffix(string(r.Line), "\n")}},
		}
		if e := r.Event; e != nil {
			m := e.Meta
			x.TimeUnixNano = uint64(max(e.Time.UnixNano(), 0))
			if at := m.GetDecision().GetRecordedUnixNano(); at > 0 {
				x.TimeUnixNano = uint64(at)
			}
			if m.GetRequest().GetStatus() >= http.StatusBadRequest {
				x.SeverityNumber, x.SeverityText = logspb.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
			}
			x.Attributes = attributes(m)
		} else {
			x.SeverityNumber, x.SeverityText = logspb.SeverityNumber_SEVERITY_NUMBER_ERROR, "ERROR"
		}
		list[i] = x
	}
	return list
}

// attributes returns what is often searched for, without what is empty.
func attributes(m *logpb.Metadata) (list []*commonpb.KeyValue) {
	q, o := m.GetRequest(), m.GetObject()
	for _, a := range [][2]string{
		{"k8s.audit.id", q.GetAuditId()}, {"k8s.audit.verb", q.GetVerb()}, {"user.name", m.GetActor().GetUser()}, {"url.path", q.GetUri()},
		{"k8s.audit.group", o.GetGroup()}, {"k8s.audit.resource", o.GetResource()}, {"k8s.namespace.name", o.GetNamespace()}, {"k8s.audit.name", o.GetName()},
	} {
		if a[1] != "" {
			list = append(list, text(a[0], a[1]))
		}
	}
	if code := q.GetStatus(); code != 0 {
		list = append(list, &commonpb.KeyValue{Key: "http.response.status_code", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(code)}}})
	}
	return list
}

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

var errForeign = errors.New("the answer is not one of OTLP")

// readAnswer reads an ExportLogsServiceResponse: it returns which part of the records the collector rejects; nil for none. The
// error says that something else than a collector has answered.
func readAnswer(body []byte) (refused *audit.PartlyRefused, err error) {
	err = eachField(body, func(number protowire.Number, kind protowire.Type, value []byte) error {
		if number != 1 || kind != protowire.BytesType {
			return errForeign
		}
		partial, _ := protowire.ConsumeBytes(value)
		p, err := readPartialSuccess(partial)
		if p.Records > 0 {
			refused = p
		}
		return err
	})
	return refused, err
}

// readPartialSuccess reads an ExportLogsPartialSuccess.
func readPartialSuccess(body []byte) (*audit.PartlyRefused, error) {
	p := &audit.PartlyRefused{}
	err := eachField(body, func(number protowire.Number, kind protowire.Type, value []byte) error {
		switch {
		case number == 1 && kind == protowire.VarintType:
			n, _ := protowire.ConsumeVarint(value)
			p.Records = int64(n)
		case number == 2 && kind == protowire.BytesType:
			p.Answer, _ = protowire.ConsumeString(value)
		}
		return nil
	})
	return p, err
}

// eachField calls f for each field of a message.
func eachField(body []byte, f func(number protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(body) > 0 {
		number, kind, n := protowire.ConsumeTag(body)
		if n < 0 {
			return errForeign
		}
		body = body[n:]
		m := protowire.ConsumeFieldValue(number, kind, body)
		if m < 0 {
			return errForeign
		}
		if err := f(number, kind, body[:m]); err != nil {
			return err
		}
		body = body[m:]
	}
	return nil
}
