package e2e

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A spanCollector receives traces as a collector of OpenTelemetry does.
type spanCollector struct {
	mu    sync.Mutex
	spans []*tracepb.Span
}

func (c *spanCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	raw, err := io.ReadAll(z)
	var data tracepb.TracesData
	if err != nil || proto.Unmarshal(raw, &data) != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range data.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

// names returns the names of the spans of a trace with their ancestors, such as "request > response".
// Each is there once: a program may ask for a name several times.
func (c *spanCollector) names(trace string) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*tracepb.Span{}
	for _, s := range c.spans {
		byID[string(s.SpanId)] = s
	}
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) != trace {
			continue
		}
		path := s.Name
		for p := byID[string(s.ParentSpanId)]; p != nil; p = byID[string(p.ParentSpanId)] {
			path = p.Name + " > " + path
		}
		names = append(names, path)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestTraces exports the trace of a response that runs a command in a new container, which tries to
// connect to a host. The trace is the client's own.
func TestTraces(t *testing.T) {
	collector := &spanCollector{}
	hs := httptest.NewServer(collector)
	t.Cleanup(hs.Close)
	s := newServerWith(t, "traces: {endpoint: \""+hs.URL+"\", sample: 0}\n")
	const trace = "0af7651916cd43dd8448eb211c80319c"
	shell := responses.ToolUnionParam{OfShell: &responses.FunctionShellToolParam{Environment: responses.FunctionShellToolEnvironmentUnionParam{
		OfContainerAuto: &responses.ContainerAutoParam{NetworkPolicy: responses.ContainerAutoNetworkPolicyUnionParam{
			OfAllowlist: &responses.ContainerNetworkPolicyAllowlistParam{AllowedDomains: []string{"api.example.com"}}}}}}}
	var answer *http.Response
	r, err := s.client().Responses.New(t.Context(), responses.ResponseNewParams{Model: "scripted",
		Tools: []responses.ToolUnionParam{shell},
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(
			fence("python3 -c 'import socket; socket.create_connection((\"refused.example.org\", 443))'; echo confidential"))}},
		option.WithHeader("traceparent", "00-"+trace+"-b7ad6b7169203331-01"), option.WithResponseInto(&answer))
	if err != nil || r.Status != responses.ResponseStatusCompleted {
		t.Fatalf("got %v, %v", r, err)
	}
	if got := answer.Header.Get("traceresponse"); !strings.HasPrefix(got, "00-"+trace+"-") {
		t.Errorf("traceresponse is %q", got)
	}
	const response = "POST /v1/responses > invoke_agent"
	const call = response + " > execute_tool shell_call"
	want := []string{"POST /v1/responses", response, response + " > chat scripted", call, call + " > exec",
		call + " > exec > connect", "POST /v1/responses > start container"}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the collector has %q", collector.names(trace))
		}
	})
	s.waitUntil("the whole trace is exported", func() bool { return slices.Equal(collector.names(trace), want) })
	collector.mu.Lock()
	defer collector.mu.Unlock()
	for _, span := range collector.spans {
		if text := span.String(); strings.Contains(text, "confidential") || strings.Contains(text, "socket") {
			t.Errorf("a span has content: %s", text)
		}
	}
}
