package config

import (
	"errors"
	"net/url"
	"os"
	"strings"
)

// Traces configures the export of traces to a collector of OpenTelemetry.
type Traces struct {
	// Endpoint is the collector's URL for OTLP over HTTP, such as http://127.0.0.1:4318. Without
	// a path, /v1/traces is appended. Default: none, nothing is exported.
	Endpoint string `yaml:"endpoint"`

	Headers map[string]string `yaml:"headers"` // sent with each request. Default: those of OTEL_EXPORTER_OTLP_HEADERS
	// share of the requests to trace, if the client has not decided. Default: 1
	Sample float64 `yaml:"sample"`
}

// headersVariable is OpenTelemetry's variable for headers.
const headersVariable = "OTEL_EXPORTER_OTLP_HEADERS"

// AllHeaders returns the headers of requests to the collector.
func (c Traces) AllHeaders() (map[string]string, error) {
	value := os.Getenv(headersVariable)
	if len(c.Headers) > 0 || value == "" {
		return c.Headers, nil
	}
	return headerPairs(headersVariable, value)
}

// headerPairs parses the value of a variable with headers.
func headerPairs(variable, value string) (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(value, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" {
			// it may be a secret
			return nil, errors.New(variable + ": the value is not NAME=VALUE pairs with commas between them")
		}
		all[name] = value
	}
	return all, nil
}

// checkTraces checks the endpoint and the headers.
func (c *Config) checkTraces() error {
	if c.Traces.Endpoint == "" {
		if len(c.Traces.Headers) > 0 {
			return errors.New("traces.headers: headers without traces.endpoint have no effect")
		}
		return nil
	}
	if u, err := url.Parse(c.Traces.Endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" ||
		u.Hostname() == "" {
		// it may contain a secret
		return errors.New("traces.endpoint: the value is not a URL such as http://127.0.0.1:4318")
	}
	_, err := c.Traces.AllHeaders()
	return err
}
