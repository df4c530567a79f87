package exchange

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/span"
)

// traceHeader tells the client the trace of its request, in the form of W3C's traceresponse.
const traceHeader = "Traceresponse"

// trace starts the span of a request that changes something, below the span that its header
// traceparent names. It returns the request with the span. Reads have none: clients poll.
func (x *Exchange) trace(r *http.Request) *http.Request {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r
	}
	if x.server.Tracer == nil {
		return r
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, s := x.server.Tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
	sc := s.SpanContext()
	x.Header().Set(traceHeader, "00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-"+sc.TraceFlags().String())
	x.span = s
	return r.WithContext(ctx)
}

// endSpan ends the span of a request whose route is known now.
func (x *Exchange) endSpan(r *http.Request) {
	if x.span == nil || !x.span.IsRecording() {
		return
	}
	if r.Pattern != "" {
		x.span.SetName(r.Pattern)
		x.span.SetAttributes(semconv.HTTPRoute(r.Pattern))
	}
	x.span.SetAttributes(semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPResponseStatusCode(x.status),
		attribute.String("berth.request.id", x.requestID), attribute.String("berth.project.id",
			string(x.caller.Project)))
	if x.status >= http.StatusInternalServerError {
		span.Fail(x.span, http.StatusText(x.status))
	}
	x.span.End()
}
