package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
)

// traced starts an engine that records its spans.
func traced(t *testing.T, turns ...turn) (*house, *tracetest.SpanRecorder, trace.Tracer) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	h := newHouse(t, turns...)
	h.stop()
	h.tracer = tracer
	h.start()
	return h, recorder, tracer
}

// outlineOf is the tree of spans in short, the order of siblings is that of their start.
func outlineOf(spans []sdktrace.ReadOnlySpan, parent trace.SpanID, indent string) (lines []string) {
	slices.SortFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	for _, s := range spans {
		if s.Parent().SpanID() != parent {
			continue
		}
		line := indent + s.Name()
		for _, kv := range s.Attributes() {
			switch kv.Key {
			case "gen_ai.usage.input_tokens", "gen_ai.response.finish_reasons", "gen_ai.tool.call.id",
				"berth.response.status", "error.type":
				line += fmt.Sprintf(" %s=%s", kv.Key, kv.Value.String())
			}
		}
		lines = append(append(lines, line), outlineOf(spans, s.SpanContext().SpanID(), indent+"  ")...)
	}
	return lines
}

// A response is a span with a child for each call of the model, failed ones too, and each hosted call.
func TestSpans(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, recorder, tracer := traced(t, turn{berth.Errorf(berth.CodeUpstream, "broken")},
			shell("call_1", `{"commands":["fail"]}`), say("secret answer"))
		h.retry.Attempts = 2
		h.containers.commands["fail"] = func(c *fakeCall) { c.exit(3) }
		ctx, request := tracer.Start(t.Context(), "request")
		r, err := h.tryCreate(ctx, `{`+withShell+`,"input":"secret question","metadata":{"a":"secret"}}`)
		if err != nil {
			t.Fatal(err)
		}
		h.final(r.ID)
		h.stop() // its goroutines have ended the spans
		want := []string{
			"invoke_agent berth.response.status=completed gen_ai.usage.input_tokens=20",
			"  chat upstream-name error.type=upstream_error",
			"  chat upstream-name gen_ai.response.finish_reasons=[\"stop\"] gen_ai.usage.input_tokens=10",
			"  execute_tool shell_call gen_ai.tool.call.id=call_1 error.type=failed",
			"  chat upstream-name gen_ai.response.finish_reasons=[\"stop\"] gen_ai.usage.input_tokens=10",
		}
		if diff := gocmp.Diff(want, outlineOf(recorder.Ended(), request.SpanContext().SpanID(), "")); diff != "" {
			t.Errorf("the spans differ (-want +got):\n%s", diff)
		}
		if all := fmt.Sprint(tracetest.SpanStubsFromReadOnlySpans(recorder.Ended())); strings.Contains(all, "secret") {
			t.Error("a span has content")
		}
	})
}

// A response that another process started is a trace of its own.
func TestSpansOfResumed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, recorder, _ := traced(t, turn{hang{}}, say("done"))
		r := h.create(`{"model":"played","input":"x","background":true}`)
		h.waitCalled(1)
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.final(r.ID); got.Status != berth.StatusCompleted {
			t.Errorf("got %s", got.Status)
		}
		h.stop()
		got := outlineOf(recorder.Ended(), trace.SpanID{}, "")
		if len(got) != 4 || !strings.HasPrefix(got[0], "invoke_agent berth.response.status=in_progress") ||
			!strings.HasPrefix(got[2], "invoke_agent berth.response.status=completed") {
			t.Errorf("got %q", got)
		}
		h.start()
	})
}
