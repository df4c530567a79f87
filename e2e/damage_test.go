package e2e

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
)

// TestDamagedState damages stored files and snapshots. A request that needs one gets an
// error that names it, and so does the operator.
func TestDamagedState(t *testing.T) {
	needsLocalState(t)
	s := newServer(t)
	c := s.client(option.WithRequestTimeout(time.Minute))
	damages := map[string]func(path string) error{
		"missing": os.Remove,
		"cut":     func(p string) error { return os.Truncate(p, 10) },
		"FIFO":    func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600)) },
	}
	refused := func(what, id string, err error) {
		t.Helper()
		e, ok := errors.AsType[*openai.Error](err)
		if !ok || !strings.Contains(e.Message, id) || e.StatusCode == 500 && e.Code != "file_corrupt" {
			t.Errorf("%s: got %v, want an error about %s", what, err, id)
		}
		s.waitUntil("the log says at level ERROR that the "+what+" is damaged", func() bool {
			return s.logs("level=ERROR", "missing or damaged", id)
		})
	}

	base, err := c.Containers.New(t.Context(), openai.ContainerNewParams{Name: "base"})
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range damages {
		f, err := c.Files.New(t.Context(), openai.FileNewParams{Purpose: openai.FilePurposeUserData,
			File: openai.File(strings.NewReader("content"), "f.txt", "text/plain")})
		if err != nil {
			t.Fatal(err)
		}
		var kept berth.Snapshot
		if err := c.Post(t.Context(), "containers/"+base.ID+"/snapshots", map[string]string{}, &kept); err != nil {
			t.Fatal(err)
		}
		for dir, id := range map[string]string{"files": f.ID, "snapshots": string(kept.ID)} {
			if err := damage(filepath.Join(s.state, dir, "proj_default", id)); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := c.Files.Content(t.Context(), f.ID)
		if err == nil {
			got, rerr := io.ReadAll(resp.Body)
			t.Errorf("%s: got %d with %q, %v", name, resp.StatusCode, got, rerr)
		}
		refused(name+" file", f.ID, err)
		_, err = c.Containers.New(t.Context(), openai.ContainerNewParams{Name: "with", FileIDs: []string{f.ID}})
		refused(name+" file for a container", f.ID, err)
		task := shellTask("Say hello.")
		_, err = c.Responses.New(t.Context(), task, option.WithJSONSet("input",
			[]any{map[string]any{"role": "user",
				"content": []any{map[string]string{"type": "input_file", "file_id": f.ID}}}}))
		refused(name+" file for a response", f.ID, err)

		from, err := c.Containers.New(t.Context(), openai.ContainerNewParams{Name: "from"},
			option.WithJSONSet("berth.snapshot_id", kept.ID))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Containers.Files.List(t.Context(), from.ID, openai.ContainerFileListParams{},
			option.WithMaxRetries(0))
		if e, ok := errors.AsType[*openai.Error](err); !ok || e.Code != "container_start_failed" &&
			e.Code != "container_expired" {
			t.Errorf("%s snapshot: got %v", name, err)
		}
		var at berth.Container
		s.waitUntil("its start has failed", func() bool {
			return c.Get(t.Context(), "containers/"+from.ID, nil, &at) == nil && at.Status == berth.ContainerExpired
		})
		s.waitUntil("the log names the "+name+" snapshot", func() bool { return s.logs("snapshot=" + string(kept.ID)) })
		// The objects can be removed.
		if _, err := c.Files.Delete(t.Context(), f.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Delete(t.Context(), "snapshots/"+string(kept.ID), nil, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
