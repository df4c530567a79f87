package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/server/config"
)

// Reload applies what it can apply, keeps upstreams that have not changed, and changes nothing if
// anything is wrong.
func TestReload(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY",
		"GOOGLE_API_KEY"} {
		t.Setenv(name, "")
	}
	key := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		if err := os.WriteFile(key, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	const file = "driver: unsafe-local\ncontainers: {pool: %d}\nlimits: {default: {responses: %d}}\nlog: {level: %s}\n" +
		"upstreams:\n  a: {base_url: 'http://127.0.0.1:1', limits: {concurrency: 1}}\n  b: {base_url: 'http://127.0.0.1:2', api_key_file: '" + "KEY" + "'}\n" +
		"models:\n- {match: one, upstreams: [{name: a}]}\n- {match: %s, upstreams: [{name: b}]}\n"
	config := func(pool, responses int, level, model string) *config.Config {
		c, err := configure(t, fmt.Sprintf(strings.ReplaceAll(file, "KEY", key), pool, responses, level, model))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s, _ := testServer(t, t.TempDir(), fmt.Sprintf(strings.ReplaceAll(file, "KEY", key), 0, 5, "info", "two"))
	var log bytes.Buffer
	s.log, s.level = slog.New(slog.NewTextHandler(&log, nil)), new(slog.LevelVar)
	router := s.reloader.models.Router
	serves := func(model string) bool { _, _, err := router.Route(model); return err == nil }
	responses := func() int64 {
		l, err := s.reloader.quota.Limits(t.Context(), "proj_default")
		if err != nil {
			t.Fatal(err)
		}
		return *l.Responses
	}
	before := *s.reloader.models.Upstreams.Load()
	if !serves("two") || serves("three") || responses() != 5 {
		t.Fatal("the first configuration is not in effect")
	}

	if err := s.Reload(config(3, 6, "warn", "three")); err != nil {
		t.Fatal(err)
	}
	after := *s.reloader.models.Upstreams.Load()
	if serves("two") || !serves("three") || responses() != 6 || s.level.Level() != slog.LevelWarn ||
		after[0] != before[0] || after[1] != before[1] {
		t.Errorf("after a reload: two %v, three %v, responses %d, level %v, upstreams %v and %v", serves("two"),
			serves("three"), responses(), s.level, before, after)
	}
	if text := log.String(); !strings.Contains(text, `changed="[log.level limits models]"`) || !strings.Contains(text,
		`next start only" keys=[containers.pool]`) {
		t.Errorf("got the log\n%s", text)
	}

	write("second") // the same configuration with another key
	if err := s.Reload(config(3, 6, "warn", "three")); err != nil {
		t.Fatal(err)
	}
	if again := *s.reloader.models.Upstreams.Load(); again[0] != after[0] || again[1] == after[1] {
		t.Errorf("after another key: got upstreams %v, had %v", again, after)
	}

	write("")
	if err := s.Reload(config(3, 7, "debug", "four")); err == nil || !strings.Contains(err.Error(),
		"upstreams.b.api_key_file: "+key+" is empty") {
		t.Errorf("an empty key: got %v", err)
	}
	if !serves("three") || serves("four") || responses() != 6 || s.level.Level() != slog.LevelWarn {
		t.Error("a wrong configuration has changed something")
	}
}

// A wrong file keeps the configuration and is logged.
func TestWrongReload(t *testing.T) {
	s, _ := testServer(t, t.TempDir(), "driver: unsafe-local\ncontainers: {pool: 0}\n")
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	reloads, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		s.serveReloads(ctx, Options{Reloads: reloads, Load: func() (*config.Config, error) {
			return configure(t, "drvier: gvisor\n")
		}})
	}()
	reloads <- struct{}{}
	cancel()
	<-done
	if text := log.String(); !strings.Contains(text,
		"failed to reload the configuration; the old one stays in effect") || !strings.Contains(text,
		"berth.yaml:1: unknown key drvier; did you mean driver?") {
		t.Errorf("got the log\n%s", text)
	}
}
