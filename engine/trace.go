package engine

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/span"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// Spans are named and described by OpenTelemetry's semantic conventions for generative AI: a
// response is an invocation of an agent, with a chat for each call of the model and an execution of
// a tool for each hosted call.

// trace starts the span of a response, below the span of ctx, if that has one.
func (r *run) trace(ctx context.Context) {
	if r.engine.Tracer == nil {
		r.span = trace.SpanFromContext(context.Background()) // one that records nothing
		return
	}
	_, r.span = r.engine.Tracer.Start(ctx, "invoke_agent")
	if !r.span.IsRecording() {
		return
	}
	body := r.record.Body
	r.span.SetAttributes(semconv.GenAIOperationNameInvokeAgent, semconv.GenAIResponseID(string(body.ID)),
		semconv.GenAIRequestModel(body.Model),
		attribute.String("berth.project.id", string(r.record.Project)), attribute.String("berth.request.id",
			r.record.RequestID))
	if body.Conversation != nil {
		r.span.SetAttributes(semconv.GenAIConversationID(string(body.Conversation.ID)))
	}
	if body.PreviousResponseID != nil {
		r.span.SetAttributes(attribute.String("berth.previous_response.id", string(*body.PreviousResponseID)))
	}
}

// addTraceID adds the id of the trace of ctx to a response, if the trace is exported.
func addTraceID(ctx context.Context, body *berth.Response) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsSampled() {
		return
	}
	if body.Berth == nil {
		body.Berth = &berth.ResponseBerth{}
	}
	body.Berth.TraceID = sc.TraceID().String()
}

// endSpan ends the span of the response.
func (r *run) endSpan() {
	if !r.span.IsRecording() {
		return
	}
	body := r.writer.Body()
	r.span.SetAttributes(attribute.String("berth.response.status", string(body.Status)),
		attribute.Int("berth.response.turns", turns(r.engine.Tools, body.Output)))
	r.span.SetAttributes(usageOf(r.usage)...)
	if body.Error != nil {
		span.Fail(r.span, body.Error.Code)
	}
	r.span.End()
}

// traceChat starts the span of a call of a model.
func traceChat(ctx context.Context, name string) (context.Context, trace.Span) {
	ctx, s := span.Start(ctx, "chat "+name, trace.WithSpanKind(trace.SpanKindClient))
	if s.IsRecording() {
		s.SetAttributes(semconv.GenAIOperationNameChat, semconv.GenAIRequestModel(name))
	}
	return ctx, s
}

// endChat ends the span of a call of a model.
func endChat(s trace.Span, f model.Finish, err error) {
	if !s.IsRecording() {
		return
	}
	if err != nil {
		span.Fail(s, chatError(err))
	}
	if f.Origin.Upstream != "" {
		s.SetAttributes(semconv.GenAIProviderNameKey.String(f.Origin.Upstream))
	}
	if f.Model != "" {
		s.SetAttributes(semconv.GenAIResponseModel(f.Model))
	}
	if f.Reason != "" {
		s.SetAttributes(semconv.GenAIResponseFinishReasons(string(f.Reason)))
	}
	if f.Usage.TotalTokens > 0 {
		s.SetAttributes(usageOf(f.Usage)...)
	}
	s.End()
}

// chatError names the error of a call of a model, without content.
func chatError(err error) string {
	if errors.Is(err, context.Canceled) || errors.Is(err, tool.ErrDetached) {
		return OutcomeCancelled
	}
	return string(berth.ErrorCode(err))
}

func usageOf(u berth.Usage) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.GenAIUsageInputTokens(u.InputTokens),
		semconv.GenAIUsageOutputTokens(u.OutputTokens),
		attribute.Int("berth.usage.cached_input_tokens", u.InputTokenDetails.CachedTokens)}
}

// traceCall starts the span of a hosted call.
func traceCall(ctx context.Context, it berth.Item) (context.Context, trace.Span) {
	ctx, s := span.Start(ctx, "execute_tool "+string(it.Type()))
	if s.IsRecording() {
		s.SetAttributes(semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(string(it.Type())),
			semconv.GenAIToolType("extension"))
		if id := it.CallID(); id != "" {
			s.SetAttributes(semconv.GenAIToolCallID(id))
		}
	}
	return ctx, s
}

// endCall ends the span of a hosted call with its outcome.
func endCall(s trace.Span, outcome string) {
	if outcome != OutcomeOK {
		span.Fail(s, outcome)
	}
	s.End()
}
