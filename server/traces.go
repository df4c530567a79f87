package server

import (
	"context"
	"fmt"
	"net/url"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/tracing"
)

// startTracing starts the export of traces, and returns the tracer, or nil without one.
func (s *Server) startTracing(ctx context.Context, b *base) (trace.Tracer, error) {
	c := b.Config.Traces
	if c.Endpoint == "" {
		return nil, nil
	}
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("traces.endpoint: %w", err)
	}
	headers, err := c.AllHeaders()
	if err != nil {
		return nil, err
	}
	exporter, err := tracing.New(ctx, tracing.Options{Endpoint: endpoint, Headers: headers, Sample: c.Sample,
		Version: b.Build.Version, Transport: b.proxies.Transport(), Instance: b.node, Log: b.Log})
	if err != nil {
		return nil, err
	}
	s.later(exporter.Close)
	return exporter.Tracer(), nil
}
