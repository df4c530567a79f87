package config

import (
	"maps"
	"strings"
	"testing"
)

// Mistakes are found before the start, and no error shows a secret.
func TestTracesConfig(t *testing.T) {
	tests := map[string]struct{ config, variable, want string }{
		"none":     {"", "", ""},
		"endpoint": {"traces: {endpoint: 'http://127.0.0.1:4318', sample: 0.5}", "", ""},
		"no URL": {"traces: {endpoint: 's3cret:4318'}", "",
			"traces.endpoint: the value is not a URL such as http://127.0.0.1:4318"},
		"sample": {"traces: {endpoint: 'http://127.0.0.1:4318', sample: 2}", "", "traces.sample"},
		"no endpoint": {"traces: {headers: {Authorization: s3cret}}", "",
			"traces.headers: headers without traces.endpoint have no effect"},
		"wrong variable": {"traces: {endpoint: 'http://127.0.0.1:4318'}", "s3cret",
			"OTEL_EXPORTER_OTLP_HEADERS: the value is not NAME=VALUE pairs"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv(headersVariable, tt.variable)
			_, err := readConfig(t, tt.config)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// The file's headers win over those of the variable.
func TestTracesHeaders(t *testing.T) {
	t.Setenv(headersVariable, "Authorization=Bearer%20a, X-Tenant = b")
	for _, tt := range []struct{ file, want map[string]string }{
		{nil, map[string]string{"Authorization": "Bearer a", "X-Tenant": "b"}},
		{map[string]string{"X": "y"}, map[string]string{"X": "y"}},
	} {
		if got, err := (Traces{Headers: tt.file}).AllHeaders(); err != nil || !maps.Equal(got, tt.want) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}
