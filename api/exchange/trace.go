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

// A requestSpan is the span of a request. Its span is nil if the request is not traced.
type requestSpan struct{ span trace.Span }

// start starts the span of a request that changes something, below the span that its header
// traceparent names. It returns the request with the span. Reads have none: clients poll.
func (s *requestSpan) start(x *Exchange, r *http.Request) *http.Request {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r
	}
	if x.server.Tracer == nil {
		return r
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, started := x.server.Tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
	sc := started.SpanContext()
	x.Header().Set(traceHeader, "00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-"+sc.TraceFlags().String())
	s.span = started
	return r.WithContext(ctx)
}

// end ends the span of a request whose route is known now.
func (s *requestSpan) end(x *Exchange, r *http.Request) {
	if s.span == nil || !s.span.IsRecording() {
		return
	}
	if r.Pattern != "" {
		s.span.SetName(r.Pattern)
		s.span.SetAttributes(semconv.HTTPRoute(r.Pattern))
	}
	s.span.SetAttributes(semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPResponseStatusCode(x.status),
		attribute.String("berth.request.id", x.requestID), attribute.String("berth.project.id",
			string(x.caller.Project)))
	if x.status >= http.StatusInternalServerError {
		span.Fail(s.span, http.StatusText(x.status))
	}
	s.span.End()
}
