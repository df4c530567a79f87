package api_test

import (
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/berth-run/berth/api"
)

// A request that changes something joins the trace that it names, and its answer names it too. Reads
// are not traced.
func TestTraceOfRequest(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	})
	h.key("sk-berth-1", "proj_1")
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for _, tt := range []struct {
		method, path, body string
		want               string
	}{
		{"POST", "/v1/responses", `{"model":"scripted","input":"x"}`, "00-" + trace + "-"},
		{"POST", "/v1/responses", `{"model":"missing","input":"x"}`, "00-" + trace + "-"},
		{"GET", "/v1/models", "", ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, h.url+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer sk-berth-1"}, "Traceparent": {"00-" + trace + "-b7ad6b7169203331-01"}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Traceresponse"); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s %s: traceresponse is %q", tt.method, tt.path, got)
		}
	}
	ended := recorder.Ended()
	if len(ended) != 2 {
		t.Fatalf("got %d spans", len(ended))
	}
	for i, status := range []int{200, 404} {
		s := ended[i]
		set := attribute.NewSet(s.Attributes()...)
		if got, _ := set.Value("http.response.status_code"); s.Name() != "POST /v1/responses" || s.Parent().SpanID().String() != "b7ad6b7169203331" || got.AsInt64() != int64(status) {
			t.Errorf("got %s of %s, %v", s.Name(), s.Parent().SpanID(), s.Attributes())
		}
	}
}

// Telemetry of the Agents SDK and codex is accepted and not stored.
func TestTelemetryIsDiscarded(t *testing.T) {
	h := newHouse(t, func(o *api.Options) { o.Exchange.Limits.MaxBody = 1 << 10 })
	h.key("sk-berth-1", "proj_1")
	const secret = "what-nobody-keeps"
	if resp := h.send(t.Context(), "POST", "/v1/traces/ingest", `{"data":[{"object":"trace","id":"trace_1","workflow_name":"`+secret+`"}]}`); resp.StatusCode != http.StatusNoContent {
		t.Errorf("a trace: got %d, want 204", resp.StatusCode)
	}
	if resp := h.send(t.Context(), "POST", "/v1/traces/ingest", `{"data":"`+strings.Repeat("x", 1<<10)+`"}`); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a long trace: got %d, want 413", resp.StatusCode)
	}
	r := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x","client_metadata":{"session":"`+secret+`"}}`)
	if r["client_metadata"] != nil {
		t.Errorf("the response shows %v", r["client_metadata"])
	}
	h.token = "sk-berth-none"
	if resp := h.send(t.Context(), "POST", "/v1/traces/ingest", `{"data":[]}`); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: got %d, want 401", resp.StatusCode)
	}
}
