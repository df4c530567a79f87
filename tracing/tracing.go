// Package tracing exports spans to a collector of OpenTelemetry, by OTLP over HTTP.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/span"
)

// Options configure an Exporter.
type Options struct {
	Endpoint *url.URL          // of the collector; /v1/traces is appended if it has no path
	Headers  map[string]string // sent with each request, such as Authorization
	Sample   float64           // share of the traces to export, from 0 to 1, where the client has not decided
	Version  string            // of the server
	Instance string            // names this server among several
	Client   *http.Client      // default: one with a timeout and Transport

	Transport http.RoundTripper // default: http.DefaultTransport
	Log       *slog.Logger
}

// An Exporter collects the spans of its tracer and sends them in batches. While the collector is
// away, a batch is sent again for up to a minute; up to 2,048 spans wait, and further ones are
// dropped. The work that is traced never waits. An Exporter is safe for concurrent use.
type Exporter struct {
	provider *sdktrace.TracerProvider
}

// New returns an exporter. It does not connect.
func New(ctx context.Context, opts Options) (*Exporter, error) {
	sender, err := otlptrace.New(ctx, newClient(opts))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "berth"), attribute.String("service.version",
		opts.Version),
		attribute.String("service.instance.id", opts.Instance))
	return &Exporter{sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(loggingExporter{sender, opts.Log}, sdktrace.WithExportTimeout(patience)),
		sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(opts.Sample))))}, nil
}

// Tracer returns the tracer for spans without a parent in this process.
func (e *Exporter) Tracer() trace.Tracer { return e.provider.Tracer(span.Scope) }

// Close sends what has been collected, as far as ctx allows, and ends the exporter.
func (e *Exporter) Close(ctx context.Context) error {
	if err := e.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}

// loggingExporter logs the failures of an exporter, which the SDK would write to standard error.
type loggingExporter struct {
	sdktrace.SpanExporter
	log *slog.Logger
}

func (l loggingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := l.SpanExporter.ExportSpans(ctx, spans); err != nil {
		l.log.Warn("failed to export traces; they are lost", "spans", len(spans), "err", err)
	}
	return nil
}
