package host

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// withSpan returns a context with the span of another one; the context itself if that has none.
func withSpan(ctx, of context.Context) context.Context {
	span := trace.SpanContextFromContext(of)
	if !span.IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, span)
}

// sendSpan is an interceptor that names the span of a call in its metadata, traceparent and tracestate (W3C Trace Context), as the
// library otelgrpc expects them. A call without a span gets none.
func sendSpan(ctx context.Context, method string, question, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if trace.SpanContextFromContext(ctx).IsValid() {
		header := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, header)
		for name, value := range header {
			ctx = metadata.AppendToOutgoingContext(ctx, name, value)
		}
	}
	return invoke(ctx, method, question, answer, conn, options...)
}
