package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
)

// A request that changes something joins the trace that it names, and its answer names it too. Reads
// are not traced.
func TestTraceOfRequest(t *testing.T) {
	t.Parallel()
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
		req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer sk-berth-1"},
			"Traceparent": {"00-" + trace + "-b7ad6b7169203331-01"}}
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
		if got, _ := set.Value("http.response.status_code"); s.Name() != "POST /v1/responses" ||
			s.Parent().SpanID().String() != "b7ad6b7169203331" || got.AsInt64() != int64(status) {
			t.Errorf("got %s of %s, %v", s.Name(), s.Parent().SpanID(), s.Attributes())
		}
	}
}

// ingest sends traces and spans.
func (h *house) ingest(items string) {
	h.t.Helper()
	resp := h.send(h.t.Context(), "POST", "/v1/traces/ingest", `{"data":[`+items+`]}`)
	if raw, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusNoContent || len(raw) > 0 {
		h.t.Fatalf("got %d %s", resp.StatusCode, raw)
	}
}

// Traces of the Agents SDK are stored once, whatever the order of requests, until their deletion.
func TestIngestTraces(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-berth-1", "proj_1")
	const span = `{"object":"trace.span","id":"span_1","trace_id":"trace_1","parent_id":null,"started_at":"2026-01-01T00:00:01.500000+00:00","ended_at":"2026-01-01T00:00:02+00:00","span_data":{"type":"agent","name":"Harbour"},"error":null}`
	const failed = `{"object":"trace.span","id":"span_2","trace_id":"trace_1","parent_id":"span_1","started_at":"2026-01-01T00:00:00Z","ended_at":"9999-01-01T00:00:00Z","span_data":{"type":"function","name":"tide"},"error":{"message":"no"}}`
	h.ingest(span) // its trace comes later
	h.ingest(`{"object":"trace","id":"trace_1","workflow_name":"Work","group_id":"g","metadata":{"a":1}},` + span +
		"," + failed)
	h.ingest(failed)
	h.ingest(`{"object":"trace","id":"trace_2","workflow_name":"Second","group_id":null,"metadata":null}`)
	list := h.call(200, "GET", "/v1/traces?limit=1", nil)
	if list.at("data", 0, "workflow_name") != "Second" || list["has_more"] != true {
		t.Errorf("got %v", list)
	}
	got := h.call(200, "GET", "/v1/traces/trace_1", nil)
	if got["workflow_name"] != "Work" || got["group_id"] != "g" || got["spans"] != 2.0 || got["errors"] != 1.0 ||
		got["started_at_ms"] != 1767225600000.0 || got["ended_at_ms"] != 1767225602000.0 ||
		got["expires_at"].(float64)-got["created_at"].(float64) != berth.TraceLife {
		t.Errorf("got %v", got)
	}
	spans := h.call(200, "GET", "/v1/traces/trace_1/spans?order=asc", nil)
	if spans.at("data", 0, "span_data", "name") != "Harbour" || spans.at("data", 1, "error", "message") != "no" ||
		spans.at("data", 1, "ended_at") != nil || spans.at("data", 2) != nil {
		t.Errorf("got %v", spans)
	}
	h.ingest(`{"object":"trace.span","id":"span_3","trace_id":"trace_2","span_data":{"type":"generation","model":"m","input":"` + strings.Repeat("x",
		berth.MaxSpanData) + `"}}`)
	large := h.call(200, "GET", "/v1/traces/trace_2/spans", nil)
	if large.at("data", 0, "truncated") != true || large.at("data", 0, "span_data", "input") != nil ||
		large.at("data", 0, "span_data", "model") != "m" {
		t.Errorf("got %v", large)
	}
	h.call(200, "DELETE", "/v1/traces/trace_1", nil)
	h.call(404, "GET", "/v1/traces/trace_1", nil)
	h.call(404, "GET", "/v1/traces/trace_1/spans", nil)
	h.call(404, "DELETE", "/v1/traces/trace_1", nil)
	for _, body := range []string{`{}`, `{"data":[{"object":"other"}]}`,
		`{"data":[{"object":"trace","id":"thread_1"}]}`,
		`{"data":[{"object":"trace.span","id":"span_1","trace_id":"../x","span_data":{}}]}`,
		`{"data":[{"object":"trace.span","id":"span_1","trace_id":"trace_1","span_data":1}]}`,
		`{"data":[{"object":"trace","id":"trace_1","workflow_name":"` + strings.Repeat("x", 1025) + `"}]}`} {
		h.call(400, "POST", "/v1/traces/ingest", body)
	}
	h.key("sk-berth-2", "proj_2") // with the same ids
	h.ingest(`{"object":"trace.span","id":"span_3","trace_id":"trace_2","span_data":{"type":"custom","name":"theirs"}}`)
	if theirs := h.call(200, "GET", "/v1/traces/trace_2/spans", nil); theirs.at("data", 0, "span_data",
		"name") != "theirs" || theirs.at("data", 1) != nil {
		t.Errorf("another project has %v", theirs)
	}
	h.call(200, "DELETE", "/v1/traces/trace_2", nil)
	h.token = "sk-berth-1"
	h.call(200, "GET", "/v1/traces/trace_2", nil)
	h.token = "sk-berth-none"
	h.call(401, "POST", "/v1/traces/ingest", `{"data":[]}`)
}

// A trace has a limited number of spans.
func TestIngestTooManySpans(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	const batch = 2500
	for n := range berth.MaxTraceSpans/batch + 1 {
		items := make([]string, batch)
		for i := range items {
			items[i] = fmt.Sprintf(`{"object":"trace.span","id":"span_%d","trace_id":"trace_1","span_data":{}}`,
				n*batch+i)
		}
		h.ingest(strings.Join(items, ","))
	}
	if got := h.call(200, "GET", "/v1/traces/trace_1", nil); got["spans"] != float64(berth.MaxTraceSpans) ||
		got["spans_dropped"] != float64(batch) {
		t.Errorf("got %v", got)
	}
}

// Telemetry of codex is accepted and not stored.
func TestTelemetryIsDiscarded(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	const secret = "not-to-be-kept"
	r := h.call(200, "POST", "/v1/responses",
		`{"model":"scripted","input":"x","client_metadata":{"session":"`+secret+`"}}`)
	if r["client_metadata"] != nil {
		t.Errorf("the response shows %v", r["client_metadata"])
	}
}
