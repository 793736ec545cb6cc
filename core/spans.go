package core

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tracing"
)

// startSpan starts the span of a request whose sender is known, if it is traced. Its stages so far get spans with the times that
// they took.
func (p *Pipeline) startSpan(r *Request) {
	if p.tracer == nil || !r.Mode.OfClient() || r.Mode.IsPart() || r.span != nil {
		return
	}
	now := time.Now()
	ctx, span, traced := p.tracer.Begin(r.HTTP, r.Requester, r.Received, r)
	if ctx == nil {
		return
	}
	r.HTTP = r.HTTP.WithContext(ctx)
	if !traced {
		return
	}
	kept := span // which is moved to the heap only here
	r.span = &kept
	span.SetAttributes(
		attribute.String("http.request.method", status.Brief(r.HTTP.Method)), attribute.String("http.target", status.Brief(r.HTTP.URL.RequestURI())),
		attribute.String("user_agent.original", status.Brief(r.HTTP.UserAgent())), attribute.String("audit-id", status.Brief(r.AuditID)),
	)
	began := r.Received
	for i := 0; i <= index("authentication"); i++ {
		_, stage := tracing.StartAt(ctx, path[i].name, began)
		if began = began.Add(r.Timings.Took(i)); began.After(now) || i == index("authentication") {
			began = now
		}
		stage.End(trace.WithTimestamp(began))
	}
}

// SpanName implements [tracing.Named]: it returns the name that kube-apiserver gives the span.
func (r *Request) SpanName() string {
	i := r.Info
	if !i.IsResourceRequest {
		return r.HTTP.Method
	}
	name := r.HTTP.Method + " /" + i.APIPrefix
	if i.APIGroup != "" {
		name += "/" + i.APIGroup
	}
	name += "/" + i.APIVersion
	if i.Namespace != "" {
		name += "/namespaces/{:namespace}"
	}
	name += "/" + i.Resource
	if i.Name != "" {
		name += "/{:name}"
	}
	if i.Subresource != "" {
		name += "/" + i.Subresource
	}
	return name
}

// runStage runs a stage. If the request is traced, the stage has a span.
func (p *Pipeline) runStage(ctx context.Context, r *Request, s *stage) error {
	if r.span == nil {
		return s.run(p, ctx, r)
	}
	ctx, span := tracing.Start(ctx, s.name)
	defer span.End()
	err := s.run(p, ctx, r)
	if again := (*call.Again)(nil); errors.As(err, &again) {
		span.AddEvent("sent back to " + again.Stage)
	} else if err != nil {
		// The message may quote the object, or say what the user may not know.
		said, _ := status.From(err)
		span.SetStatus(codes.Error, string(said.Reason))
	}
	return err
}

// end measures a request that has been answered, and ends its span.
func (p *Pipeline) end(r *Request) {
	p.metrics.audited(r.Audit)
	p.logSlow(r, p.metrics.request(r, p.table))
	if r.span == nil {
		return
	}
	span := *r.span
	span.SetAttributes(attribute.Int("http.response.status_code", r.W.Code), attribute.Int("http.response.body.size", r.W.Size))
	if r.failure != nil {
		span.SetAttributes(attribute.String("stele.stage", r.Stage))
	}
	if r.W.Code >= 500 {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
