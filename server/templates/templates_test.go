package templates

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/config"
)

// giveTemplate adds a template to an image store.
func giveTemplate(t *testing.T, dir, name, digest string) {
	t.Helper()
	for path, text := range map[string]string{
		filepath.Join("templates", digest[len("sha256:"):], "template.json"): `{"digest":"` + digest + `"}`,
		filepath.Join("names", name):                                         digest + "\n",
	} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text),
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// The server holds the templates that its containers may start from and releases unused ones. Those
// that containers and snapshots refer to stay in any case.
func TestTemplatesSweep(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	images, err := image.Open(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	old, next := "sha256:"+strings.Repeat("0", 64), "sha256:"+strings.Repeat("1", 64)
	giveTemplate(t, dir, "base", old)
	ts := New(images, &config.Config{Template: "base"}, nil)
	defer ts.Close()
	if got, err := ts.Find(""); err != nil || got.Digest != old {
		t.Fatalf("default template: got %+v, %v", got, err)
	}
	giveTemplate(t, dir, "base", next) // another process has rebuilt it
	none := func(context.Context) (map[string]bool, error) { return nil, nil }
	there := func(digest string) bool { _, err := images.Get(digest); return err == nil }
	prune := func() { // as another process does
		t.Helper()
		if _, err := images.Prune(t.Context(), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for _, step := range []struct {
		inUse map[string]bool
		now   time.Time
		want  bool
	}{
		{nil, now, true}, // just requested
		{map[string]bool{old: true}, now.Add(time.Hour), true}, // a sandbox runs on it
		{nil, now.Add(time.Hour), false},
	} {
		if err := ts.Sweep(t.Context(), none, step.inUse, step.now, log); err != nil {
			t.Fatal(err)
		}
		if prune(); there(old) != step.want {
			t.Errorf("with %v in use at %v: exists = %v", step.inUse, step.now.Sub(now), !step.want)
		}
	}
	_, err = ts.Find(old)
	if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeNotFound || e.Param != "berth.template" {
		t.Errorf("removed template: got %v", err)
	}
	if got, err := ts.Find("base"); err != nil || got.Digest != next {
		t.Errorf("base: got %+v, %v", got, err)
	}
	broken := errors.New("the store is broken")
	err = ts.Sweep(t.Context(), func(context.Context) (map[string]bool, error) { return nil, broken }, nil, now, log)
	if !errors.Is(err, broken) {
		t.Errorf("sweep without references: got %v", err)
	}
}

// Without a configured template, the only one with a name is the default.
func TestOnlyTemplate(t *testing.T) {
	dir := t.TempDir()
	images, err := image.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	normal, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	named, err := configOf(t, "template: base\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Default(normal, images); !errors.Is(err, image.ErrNotFound) {
		t.Errorf("without templates: got %v", err)
	}
	first, second := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	giveTemplate(t, dir, "python", first)
	giveTemplate(t, dir, "python-3.12", first)
	if got, err := Default(normal, images); err != nil || got.Digest != first {
		t.Errorf("one template: got %v, %v", got, err)
	}
	if _, err := Default(named, images); !errors.Is(err, image.ErrNotFound) {
		t.Errorf("one template of another name than the configured one: got %v", err)
	}
	giveTemplate(t, dir, "node", second)
	if _, err := Default(normal, images); !errors.Is(err, image.ErrNotFound) || !strings.Contains(err.Error(),
		"name one in the configuration") {
		t.Errorf("two templates: got %v", err)
	}
	giveTemplate(t, dir, "base", second)
	if got, err := Default(normal, images); err != nil || got.Digest != second {
		t.Errorf("with base: got %v, %v", got, err)
	}
}

// configOf reads a configuration.
func configOf(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Sources{Path: path})
}
