package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/sandbox/local"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/doctor"
	"github.com/berth-run/berth/server/driver"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/server/templates"
	"github.com/berth-run/berth/store/sqlite"
)

// get returns the status and the body of a response.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestReadyServer(t *testing.T) {
	_, web := testServer(t, t.TempDir(), "driver: unsafe-local\ncontainers: {pool: 0}\n")
	status, text := get(t, web.URL+"/readyz")
	var body struct {
		Status string
		Checks map[string]struct{ Status string }
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"store", "driver", "template", "disk"} {
		if body.Checks[name].Status != "ok" {
			t.Errorf("the check %s: got %q", name, body.Checks[name].Status)
		}
	}
	if status != http.StatusOK || body.Status != "ready" || len(body.Checks) != 4 {
		t.Errorf("got %d %s", status, text)
	}
}

// A read-only store and a missing template make the server not ready. The response names the
// checks, but reveals nothing of the machine.
func TestNotReady(t *testing.T) {
	dir := t.TempDir()
	db, err := state.OpenStore(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config := &config.Config{Driver: local.Name}
	d, err := driver.Open(dir, config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	space, err := openSpace(dir, config, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	noTemplate := func(string) (container.Template, error) {
		return container.Template{}, errors.New("/secret/path: not there")
	}
	got := map[string]string{}
	for _, c := range newReadiness(db, d, noTemplate, space, nil, slog.New(slog.DiscardHandler)).get(t.Context()) {
		got[c.Name] = c.Message
	}
	want := map[string]string{"store": "The database is not writable.", "driver": "",
		"template": "The default template is missing. Run berth image build.", "disk": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the checks (-want +got):\n%s", diff)
	}
}

// A template that is being built says since when, and when to ask again. A failed build says why.
func TestReadyWhileBuilding(t *testing.T) {
	state := t.TempDir()
	b := &templates.Build{}
	r := &readiness{log: slog.New(slog.DiscardHandler),
		checks: []readyCheck{{name: "template", explains: true, advice: "Build one.",
			check: func(context.Context) error { return b.Unavailable() }}}}
	for _, tt := range []struct {
		status     *templates.BuildStatus
		want       string
		retryAfter time.Duration
	}{
		{nil, "", 0},
		{&templates.BuildStatus{Since: 1_800_000_000}, "The base template is being built (since 08:00:00 UTC)", templates.BuildRetry},
		{&templates.BuildStatus{Since: 1_800_000_000, Failed: templates.Reason(errors.New("build: first\nE: no archive in "+state+"."),
			state)}, "The base template could not be built: E: no archive in ….", 0},
	} {
		b.Set(state, tt.status)
		r.at = time.Time{}
		got := r.get(t.Context())[0]
		if got.OK != (tt.want == "") || !strings.HasPrefix(got.Message, tt.want) || got.RetryAfter != tt.retryAfter {
			t.Errorf("got %+v, want %q", got, tt.want)
		}
		if err := os.WriteFile(filepath.Join(state, "lock"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			t.Fatal(err)
		}
		_, found := doctor.CheckTemplate(state, config.Default())
		if tt.want != "" && !strings.HasPrefix(found.Detail, tt.want) || found.OK ||
			(found.Fix == nil) != (tt.retryAfter > 0) {
			t.Errorf("doctor: got %+v, want %q", found, tt.want)
		}
		if err := os.Remove(filepath.Join(state, "lock")); err != nil {
			t.Fatal(err)
		}
		if _, found := doctor.CheckTemplate(state, config.Default()); found.Detail != "there is none yet" {
			t.Errorf("doctor without a server: got %+v", found)
		}
	}
}

// A check that fails is logged when it begins to fail and when it is ok again, not at each poll.
func TestReadinessLogsChanges(t *testing.T) {
	var text bytes.Buffer
	var err error
	r := &readiness{log: slog.New(slog.NewTextHandler(&text, nil)),
		checks: []readyCheck{{name: "template", check: func(context.Context) error {
			return err
		}, advice: "Build one."},
			{name: "store", check: func(context.Context) error { return nil }}}}
	for _, failing := range []bool{false, true, true, true, false, false, true} {
		if err = nil; failing {
			err = errors.New("not built yet")
		}
		r.at = time.Time{}
		if got := r.get(t.Context()); got[0].OK == failing || !got[1].OK {
			t.Errorf("failing %t: got %v", failing, got)
		}
	}
	if got, want := regexp.MustCompile(`level=\w+ msg="[a-z ]+" check=\w+`).FindAllString(text.String(),
		-1), []string{`level=WARN msg="not ready" check=template`,
		`level=INFO msg="ready again" check=template`, `level=WARN msg="not ready" check=template`}; !slices.Equal(got,
		want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// GET / says what this server is, without a key: to a browser as a page.
func TestIndex(t *testing.T) {
	_, web := testServer(t, t.TempDir(), "driver: unsafe-local\ncontainers: {pool: 0}\n")
	if status, text := get(t, web.URL+"/"); status != 200 || !strings.Contains(text, `"name":"Berth"`) ||
		!strings.Contains(text, `"api":"/v1"`) {
		t.Errorf("got %d %s", status, text)
	}
	for accept, kind := range map[string]string{"": "application/json", "*/*": "application/json",
		"application/json, text/plain":                                    "application/json",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "text/html"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", web.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		got, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		if got != kind || resp.Header.Get("Vary") != "Accept" || kind == "text/html" &&
			(!strings.Contains(string(page), "<title>Berth</title>") ||
				!strings.Contains(string(page), `href="/openapi.json"`) ||
				!strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'")) {
			t.Errorf("accept %q: got %s, %v\n%s", accept, got, resp.Header, page)
		}
	}
	if status, text := get(t, web.URL+"/version"); status != 200 || !strings.Contains(text, `"version":`) ||
		!strings.Contains(text, `"go":`) {
		t.Errorf("version: got %d %s", status, text)
	}
	if status, _ := get(t, web.URL+"/nonesuch"); status != 404 {
		t.Errorf("another path: got %d, want 404", status)
	}
}
