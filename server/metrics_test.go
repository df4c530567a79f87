package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/server/embedded"
)

// testServer returns a running server with a configuration. It destroys the server's sandboxes at
// the end of the test.
func testServer(t *testing.T, state, config string) (*Server, *httptest.Server) {
	t.Helper()
	if _, err := embedded.Extract(t.TempDir()); err != nil {
		t.Skipf("skipped: %v", err)
	}
	c, err := configure(t, config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Options{State: state, Config: c, Build: berth.Build{Version: "test"},
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.handler)
	t.Cleanup(func() {
		web.Close()
		s.Close(context.WithoutCancel(t.Context()))
	})
	return s, web
}

func scrape(t *testing.T, s *Server) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// eventually scrapes until the text contains all wanted strings.
func eventually(t *testing.T, s *Server, want ...string) string {
	t.Helper()
	text := ""
	for end := time.Now().Add(20 * time.Second); ; {
		text = scrape(t, s)
		missing := ""
		for _, w := range want {
			if !regexp.MustCompile("(?m)^" + w + "$").MatchString(text) {
				missing = w
			}
		}
		if missing == "" {
			return text
		}
		if time.Now().After(end) {
			t.Fatalf("%s is missing:\n%s", missing, text)
		}
	}
}

// A conversation with a command appears in all affected metrics, which pass Prometheus' own linter.
func TestMetricsOfAConversation(t *testing.T) {
	state := t.TempDir()
	up := modeltest.NewChatServer(t, modeltest.Play(
		modeltest.Reply(model.Call{ID: "call_1", Name: "shell", Arguments: `{"commands":["true","exit 3"]}`},
			model.Finish{Reason: model.FinishStop,
				Usage: berth.Usage{InputTokens: 7, OutputTokens: 2, TotalTokens: 9}}),
		modeltest.Reply(model.Text{Text: "done"}, model.Finish{Reason: model.FinishStop,
			Usage: berth.Usage{InputTokens: 9, OutputTokens: 1, TotalTokens: 10}})))
	s, web := testServer(t, state,
		"driver: unsafe-local\ncontainers: {pool: 0}\nupstreams: {up: {base_url: '"+up.URL+"', api_key: '"+modeltest.Key+"'}}\nmodels: [{match: m, upstreams: [{name: up}]}]\n")
	defer destroyAll(t, state)
	resp, err := http.Post(web.URL+"/v1/responses", "application/json", strings.NewReader(
		`{"model":"m","input":"go","stream":true,"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(body), "response.completed") {
		t.Fatalf("got %s, %v", body, err)
	}
	id := regexp.MustCompile(`cntr_[0-9a-f]+`).FindString(string(body))
	text := eventually(t, s, `berth_responses_total\{model="m",status="completed"\} 1`,
		`berth_response_duration_seconds_count\{status="completed"\} 1`,
		`berth_response_turns_sum\{status="completed"\} 2`,
		`berth_tokens_total\{kind="input",model="m"\} 16`,
		`berth_time_to_first_token_seconds_count\{model="m",upstream="up"\} 2`,
		`berth_tool_calls_total\{outcome="failed",tool="shell_call"\} 1`,
		`berth_tool_call_duration_seconds_count\{tool="shell_call"\} 1`,
		`berth_upstream_circuit\{state="closed",upstream="up"\} 1`,
		`berth_upstream_turns_total\{upstream="up"\} 2`, `berth_upstream_completed_total\{upstream="up"\} 2`,
		`berth_upstream_in_flight\{upstream="up"\} 0`,
		`berth_container_start_duration_seconds_count\{start="cold"\} 1`,
		`berth_exec_duration_seconds_count\{outcome="ok",source="shell"\} 1`,
		`berth_exec_duration_seconds_count\{outcome="failed",source="shell"\} 1`,
		`berth_containers\{isolation="none",memory_limit="1g"\} 1`,
		`berth_store_commit_duration_seconds_count\{operation="create"\} 1`,
		`berth_store_commit_duration_seconds_count\{operation="append"\} [1-9][0-9]*`,
		`berth_http_requests_total\{route="POST /v1/responses",status="200"\} 1`,
		`berth_http_streams\{kind="events"\} 0`,
		`berth_audit_entries_total [1-9][0-9]*`, `berth_audit_failures_total 0`, `berth_snapshots 0`)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if bad := regexp.MustCompile(`(?m)^berth_.*(resp|call|req)_[0-9a-f]{8}.*$`).FindString(text); bad != "" {
		t.Errorf("an id is a label: %s", bad)
	}

	remove, err := http.NewRequest("DELETE", web.URL+"/v1/containers/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err = http.DefaultClient.Do(remove); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", resp, err)
	}
	resp.Body.Close()
	eventually(t, s, `berth_containers_ended_total\{reason="deleted"\} 1`)
}

// The running time of containers is in the metrics and in the project's usage, and survives a
// restart of the server.
func TestContainerSecondsSurvive(t *testing.T) {
	state := t.TempDir()
	const config = "driver: unsafe-local\ncontainers: {pool: 0}\n"
	s, web := testServer(t, state, config)
	defer destroyAll(t, state)
	resp, err := http.Post(web.URL+"/v1/containers", "application/json",
		strings.NewReader(`{"name":"one","memory_limit":"4g"}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	id := regexp.MustCompile(`cntr_[0-9a-f]+`).FindString(string(body))
	created := time.Now()
	for time.Since(created) < 1100*time.Millisecond { // whole seconds are counted
		scrape(t, s)
	}
	remove, _ := http.NewRequest("DELETE", web.URL+"/v1/containers/"+id, nil)
	if resp, err = http.DefaultClient.Do(remove); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", resp, err)
	}
	resp.Body.Close()
	const want = `berth_container_seconds_total\{isolation="none",memory_limit="4g",project="[a-z_]+"\} [1-9]`
	text := eventually(t, s, want)
	line := regexp.MustCompile("(?m)^" + want + "$").FindString(text)
	web.Close()
	s.Close(t.Context())

	again, web := testServer(t, state, config)
	if text := scrape(t, again); !strings.Contains(text, line) {
		t.Errorf("%s is missing after a restart:\n%s", line, text)
	}
	resp, err = http.Get(fmt.Sprintf("%s/v1/organization/usage/code_interpreter_sessions?bucket_width=1d&start_time=%d",
		web.URL, created.Unix()))
	if err != nil {
		t.Fatal(err)
	}
	body, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	if usage := `"seconds":{"4g":` + line[strings.LastIndex(line, " ")+1:] + `}`; !strings.Contains(string(body),
		usage) {
		t.Errorf("got %s, want %s", body, usage)
	}
}

// A web page cannot read the metrics, neither from its own origin nor under its own name for this
// machine.
func TestMetricsServeNoPages(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})
	for _, tt := range []struct {
		name, host, header, value string
		loopback                  bool
		status                    int
	}{
		{"Prometheus", "127.0.0.1:9090", "", "", true, 200},
		{"ByName", "localhost:9090", "", "", true, 200},
		{"Rebound", "evil.example:9090", "", "", true, 403},
		{"ReboundWithoutPort", "evil.example", "", "", true, 403},
		{"Origin", "127.0.0.1:9090", "Origin", "http://evil.example", true, 403},
		{"Image", "127.0.0.1:9090", "Sec-Fetch-Site", "cross-site", true, 403},
		{"AddressBar", "127.0.0.1:9090", "Sec-Fetch-Site", "none", true, 200},
		{"Outside", "berth.internal:9090", "", "", false, 200},
		{"OutsideOrigin", "berth.internal:9090", "Origin", "http://evil.example", false, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.Host = tt.host
			if tt.header != "" {
				r.Header.Set(tt.header, tt.value)
			}
			w := httptest.NewRecorder()
			noPages(served, tt.loopback).ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
}
