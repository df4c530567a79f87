package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth/api"
)

// withOrigins starts a server with a key that allows pages of the given origins.
func withOrigins(t *testing.T, origins ...string) *house {
	t.Helper()
	h := newHouse(t, func(o *api.Options) { o.Exchange.Origins = origins })
	h.key("sk-a", "proj_a")
	return h
}

// page sends a request as a browser does for a page, with pairs of headers.
func (h *house) page(method, path, key string, headers ...string) *http.Response {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, nil)
	check(h.t, err)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	check(h.t, err)
	check(h.t, resp.Body.Close())
	return resp
}

func TestCORS(t *testing.T) {
	t.Parallel()
	const page = "https://app.example"
	h := withOrigins(t, page, "http://localhost:3000")
	preflight := func(path, origin string) *http.Response {
		t.Helper()
		return h.page("OPTIONS", path, "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization, content-type,x-stainless-lang")
	}
	got := preflight("/v1/responses", page)
	if got.StatusCode != 204 || got.Header.Get("Access-Control-Allow-Origin") != page ||
		got.Header.Get("Access-Control-Allow-Headers") != "authorization, content-type,x-stainless-lang" ||
		!strings.Contains(got.Header.Get("Access-Control-Allow-Methods"), "POST") ||
		!strings.Contains(strings.Join(got.Header.Values("Vary"), ","), "Origin") {
		t.Errorf("got %d %v", got.StatusCode, got.Header)
	}
	for _, origin := range []string{"https://app.example.evil.example", "http://app.example",
		"https://app.example:8443", "null", "https://APP.example"} {
		if got := preflight("/v1/responses", origin); got.StatusCode == 204 || allows(got.Header) {
			t.Errorf("%s: got %d %v", origin, got.StatusCode, got.Header)
		}
	}
	for path, status := range map[string]int{"/v1/models": 200, "/v1/models/none": 404, "/openapi.json": 200,
		"/nothing": 404} {
		got := h.page("GET", path, "sk-a", "Origin", page)
		if got.StatusCode != status || got.Header.Get("Access-Control-Allow-Origin") != page ||
			!strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), "x-request-id") ||
			got.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: got %d %v", path, got.StatusCode, got.Header)
		}
	}
	if got := h.page("GET", "/v1/models", "", "Origin", page); got.StatusCode != 401 ||
		got.Header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("without a key: got %d %v", got.StatusCode, got.Header)
	}
}

// CORS of the configured origins does not cover requests forwarded to a container.
func TestCORSNotForContainers(t *testing.T) {
	t.Parallel()
	h := withOrigins(t, "*")
	for _, path := range []string{"/v1/containers/cntr_1/ports/80/", "/v1/containers/cntr_1/guest/files",
		"/preview/x/"} {
		for _, method := range []string{"OPTIONS", "GET"} {
			got := h.page(method, path, "sk-a", "Origin", "https://app.example", "Access-Control-Request-Method", "GET")
			if got.StatusCode == 204 || allows(got.Header) {
				t.Errorf("%s %s: got %d %v", method, path, got.StatusCode, got.Header)
			}
		}
	}
	got := h.page("GET", "/v1/models", "sk-a", "Origin", "https://app.example")
	if got.Header.Get("Access-Control-Allow-Origin") != "*" ||
		got.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("got %v", got.Header)
	}
}

// CORS is off by default.
func TestNoCORS(t *testing.T) {
	t.Parallel()
	h := withOrigins(t)
	got := h.page("GET", "/v1/models", "sk-a", "Origin", "https://app.example")
	if allows(got.Header) || got.Header.Get("Vary") != "" {
		t.Errorf("got %v", got.Header)
	}
}

// allows reports whether a browser lets any page read an answer.
func allows(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			return true
		}
	}
	return false
}
