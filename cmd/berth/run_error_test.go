package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The errors of berth run that the server's log explains have the id of the request.
func TestRunNamesFailedRequest(t *testing.T) {
	t.Setenv("BERTH_API_KEY", "")
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   string
	}{
		{"refused", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":{"message":"The upstream 'a' failed."}}`)
		}, "berth: The upstream 'a' failed. (request req_1)\n"},
		{"no JSON", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
		}, "berth: the server returned 502 Bad Gateway (request req_1)\n"},
		{"failed later", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w,
				`data: {"type":"response.failed","sequence_number":0,"response":{"id":"resp_1","status":"failed","output":[],"error":{"code":"server_error","message":"It broke."}}}`+"\n\n")
		}, "berth: It broke. (request req_1)\n"},
		{"the client's fault", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"Wrong."}}`)
		}, "berth: Wrong.\n"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("x-request-id", "req_1")
			if r.URL.Path == "/v1/responses" {
				tt.answer(w)
			}
		}))
		t.Setenv("BERTH_URL", s.URL)
		code, stderr := commandLine(t, "run", "--model", "m", "--no-container", "x")
		s.Close()
		if code != 1 || !strings.HasSuffix(stderr, tt.want) {
			t.Errorf("%s: got %d %q, want %q", tt.name, code, stderr, tt.want)
		}
	}
}

// The error of a client that expects TLS of a server without it, or the other way round, has the
// address to use.
func TestWrongScheme(t *testing.T) {
	t.Setenv("BERTH_API_KEY", "")
	plain, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	defer plain.Close()
	defer secure.Close()
	for url, want := range map[string]string{
		strings.Replace(plain.URL, "http:", "https:", 1):  "speaks HTTP without TLS; use " + plain.URL,
		strings.Replace(secure.URL, "https:", "http:", 1): "speaks HTTPS; use " + secure.URL,
	} {
		t.Setenv("BERTH_URL", url)
		if code, stderr := commandLine(t, "ps"); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d %q, want %q", url, code, stderr, want)
		}
	}
}
