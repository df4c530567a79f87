package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/berth-run/berth/internal/backoff"
)

const (
	patience = time.Minute      // for a batch, with all attempts
	timeout  = 10 * time.Second // of one attempt
)

// client sends batches of spans by OTLP over HTTP (protobuf, gzip). It implements
// otlptrace.Client: the project's own client for HTTP needs gRPC, which would add 100 packages.
type client struct {
	url     string
	headers map[string]string
	http    *http.Client
}

func newClient(opts Options) *client {
	u := *opts.Endpoint
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	c := &client{url: u.String(), headers: opts.Headers, http: opts.Client}
	if c.http == nil {
		c.http = &http.Client{Timeout: timeout, Transport: opts.Transport}
	}
	return c
}

func (c *client) Start(context.Context) error { return nil }
func (c *client) Stop(context.Context) error  { return nil }

// UploadTraces sends a batch. It repeats the request after the failures that the protocol calls
// temporary, until ctx ends.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData has the same bytes as the request of the protocol.
	plain, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	_, _ = z.Write(plain) // a buffer takes everything
	_ = z.Close()
	wait := backoff.Delays{First: time.Second, Max: 10 * time.Second}
	for {
		again, err := c.send(ctx, body.Bytes())
		if err == nil || !again {
			return err
		}
		if backoff.Sleep(ctx, wait.Next()) != nil {
			return err
		}
	}
}

// send sends a batch once and reports whether to send it again after an error.
func (c *client) send(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("make request: %w", err)
	}
	for name, value := range c.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := c.http.Do(req)
	if err != nil {
		return ctx.Err() == nil, fmt.Errorf("send spans: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, errors.New("the collector answered " + resp.Status)
}
