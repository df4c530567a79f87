package tracing_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/berth-run/berth/internal/span"
	"github.com/berth-run/berth/tracing"
)

// A collector receives batches as a collector of OpenTelemetry does. It first answers with failures.
type collector struct {
	t        *testing.T
	failures []int

	mu       sync.Mutex
	requests []*http.Request
	received []*tracepb.Span
	resource map[string]string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	if len(c.failures) > 0 {
		w.WriteHeader(c.failures[0])
		c.failures = c.failures[1:]
		return
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		c.t.Error(err)
		return
	}
	raw, err := io.ReadAll(z)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(raw, &data)
	}
	if err != nil {
		c.t.Error(err)
		return
	}
	for _, rs := range data.ResourceSpans {
		c.resource = map[string]string{}
		for _, kv := range rs.Resource.Attributes {
			c.resource[kv.Key] = kv.Value.GetStringValue()
		}
		for _, ss := range rs.ScopeSpans {
			c.received = append(c.received, ss.Spans...)
		}
	}
}

// inProcess answers requests by a handler, without a network: for tests with fake time.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

func open(t *testing.T, c *collector, log io.Writer, change func(*tracing.Options)) *tracing.Exporter {
	t.Helper()
	opts := tracing.Options{Endpoint: &url.URL{Scheme: "http", Host: "collector.test:4318"},
		Headers: map[string]string{"Authorization": "Bearer s3cret"},
		Sample:  1, Version: "1.2.3", Instance: "node-1", Client: &http.Client{Transport: inProcess{c}},
		Log: slog.New(slog.NewTextHandler(log, nil))}
	if change != nil {
		change(&opts)
	}
	e, err := tracing.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Spans arrive with their parents, times, attributes and outcomes.
func TestExport(t *testing.T) {
	c := &collector{t: t}
	e := open(t, c, t.Output(), nil)
	ctx, parent := e.Tracer().Start(t.Context(), "parent")
	began := time.Now().Add(-time.Minute)
	child := span.Below(parent, "child", began, attribute.Int("size", 7))
	span.Fail(child, "timeout")
	child.End()
	parent.End()
	_, late := span.Start(ctx, "late") // its parent has ended
	late.End()
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := map[string]*tracepb.Span{}
	for _, s := range c.received {
		spans[s.Name] = s
	}
	p, k, l := spans["parent"], spans["child"], spans["late"]
	if p == nil || k == nil || l == nil {
		t.Fatalf("got %v", spans)
	}
	for _, s := range []*tracepb.Span{k, l} {
		if !bytes.Equal(s.ParentSpanId, p.SpanId) || !bytes.Equal(s.TraceId, p.TraceId) {
			t.Errorf("%s is not a child of parent", s.Name)
		}
	}
	if k.StartTimeUnixNano != uint64(began.UnixNano()) || k.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR ||
		k.Status.GetMessage() != "timeout" {
		t.Errorf("got %v", k)
	}
	if got := k.Attributes; len(got) != 2 || got[0].Key != "size" || got[0].Value.GetIntValue() != 7 ||
		got[1].Key != "error.type" {
		t.Errorf("got attributes %v", got)
	}
	if c.resource["service.name"] != "berth" || c.resource["service.version"] != "1.2.3" ||
		c.resource["service.instance.id"] != "node-1" {
		t.Errorf("got resource %v", c.resource)
	}
	if r := c.requests[0]; r.URL.Path != "/v1/traces" || r.Header.Get("Authorization") != "Bearer s3cret" ||
		r.Header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("got %s %v", r.URL, r.Header)
	}
}

// A path of the endpoint is used as it is.
func TestPath(t *testing.T) {
	c := &collector{t: t}
	e := open(t, c, t.Output(), func(o *tracing.Options) { o.Endpoint.Path = "/otlp/traces" })
	_, s := e.Tracer().Start(t.Context(), "x")
	s.End()
	if err := e.Close(t.Context()); err != nil || len(c.requests) != 1 || c.requests[0].URL.Path != "/otlp/traces" {
		t.Errorf("got %v, %v", c.requests, err)
	}
}

// A batch is sent again after a temporary failure, and dropped with a line in the log after another.
func TestFailures(t *testing.T) {
	tests := map[string]struct {
		failures []int
		requests int
		spans    int
		log      string
	}{
		"temporary": {[]int{503, 429, 502}, 4, 1, ""},
		"refused":   {[]int{401}, 1, 0, "failed to export traces; they are lost"},
		"away":      {slices.Repeat([]int{503}, 100), 9, 0, "503 Service Unavailable"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &collector{t: t, failures: tt.failures}
				var log bytes.Buffer
				e := open(t, c, &log, nil)
				_, s := e.Tracer().Start(t.Context(), "x")
				s.End()
				time.Sleep(2 * time.Minute) // of fake time: the batch is sent and given up
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if len(c.requests) != tt.requests || len(c.received) != tt.spans || !strings.Contains(log.String(),
					tt.log) || tt.log == "" && log.Len() > 0 {
					t.Errorf("got %d requests, %d spans and the log %q", len(c.requests), len(c.received), log.String())
				}
				if strings.Contains(log.String(), "s3cret") {
					t.Error("the log has a header")
				}
			})
		})
	}
}

// The client's decision about sampling wins over the configured share.
func TestSample(t *testing.T) {
	parent := func(flags trace.TraceFlags) context.Context {
		return trace.ContextWithRemoteSpanContext(t.Context(),
			trace.NewSpanContext(trace.SpanContextConfig{TraceID: [16]byte{1}, SpanID: [8]byte{2}, TraceFlags: flags,
				Remote: true}))
	}
	tests := map[string]struct {
		sample float64
		ctx    context.Context
		want   int
	}{
		"none":                       {0, t.Context(), 0},
		"all":                        {1, t.Context(), 1},
		"none, but the client wants": {0, parent(trace.FlagsSampled), 1},
		"all, but the client not":    {1, parent(0), 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &collector{t: t}
			e := open(t, c, t.Output(), func(o *tracing.Options) { o.Sample = tt.sample })
			ctx, s := e.Tracer().Start(tt.ctx, "x")
			s.End()
			if _, child := span.Start(ctx, "y"); child.IsRecording() != (tt.want > 0) {
				t.Errorf("a child records: %t", child.IsRecording())
			}
			if err := e.Close(t.Context()); err != nil || len(c.received) != tt.want {
				t.Errorf("got %d spans, %v", len(c.received), err)
			}
		})
	}
}
