// Package span starts spans of OpenTelemetry below the span of a context.
//
// Without tracing, the span of a context does not record, and all functions do nothing. Spans have
// names, ids, numbers and outcomes. They never have text of a message, a command or its output, an
// argument of a call, or a header.
package span

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the instrumentation scope of all spans.
const Scope = "github.com/berth-run/berth"

// Start starts a child of the context's span, which may have ended, and returns a context with it.
// The caller must end it.
func Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, parent
	}
	return parent.TracerProvider().Tracer(Scope).Start(ctx, name, options...)
}

// Below starts a child of a span that began at a time, for work without a context of its own.
func Below(parent trace.Span, name string, began time.Time, attributes ...attribute.KeyValue) trace.Span {
	ctx := trace.ContextWithSpan(context.Background(), parent)
	_, child := Start(ctx, name, trace.WithTimestamp(began), trace.WithAttributes(attributes...))
	return child
}

// Fail marks a span as failed. Its text says what failed, without content: an error's code, an exit
// code, the reason of an end.
func Fail(s trace.Span, kind string) {
	if s.IsRecording() {
		s.SetStatus(codes.Error, kind)
		s.SetAttributes(attribute.String("error.type", kind))
	}
}
