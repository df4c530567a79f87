package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// TestOutage fills the disk below a server while a command prints, and frees it again.
// The same server continues the responses: the stream that was open tells
// everything once, a cancel that could not be stored is not answered with 200, and
// what was cancelled ends.
func TestOutage(t *testing.T) {
	needsLocalState(t)
	if os.Getuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	disk := t.TempDir()
	if err := syscall.Mount("berth-test", disk, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("no small disk can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := newServerIn(t, filepath.Join(disk, "state"), "disk: {low: 0, critical: 0, reserve: 0}\n")
	c := s.client()
	const lines = 100
	count := fence(fmt.Sprintf("for i in $(seq %d); do echo line $i; sleep 0.05; done", lines))
	background := shellTask(count)
	background.Background = openai.Bool(true)
	doomed, err := c.Responses.New(t.Context(), background)
	if err != nil {
		t.Fatal(err)
	}
	stream := c.Responses.NewStreaming(t.Context(), shellTask(count))
	defer stream.Close()
	var id string
	var told strings.Builder
	next := int64(0)
	read := func() (more bool) {
		if !stream.Next() {
			return false
		}
		ev := stream.Current()
		if ev.SequenceNumber != next {
			t.Fatalf("event %d where %d is next", ev.SequenceNumber, next)
		}
		next++
		switch ev.Type {
		case "response.created":
			id = ev.Response.ID
		case "response.shell_call_output_content.delta":
			told.WriteString(ev.AsResponseShellCallOutputContentDelta().Delta.Stdout)
		}
		return true
	}
	for !strings.Contains(told.String(), "line 3\n") {
		if !read() {
			t.Fatalf("the stream ended: %v", stream.Err())
		}
	}
	s.waitUntil("the other command prints", func() bool {
		r, err := c.Responses.Get(t.Context(), doomed.ID, responses.ResponseGetParams{})
		return err == nil && len(r.Output) == 2
	})

	full := filepath.Join(disk, "full")
	s.waitUntil("appends to both responses have failed", func() bool {
		fill(t, full) // again, if the server has given something up
		log := s.log.String()
		const failed = `msg="failed to store events; the response is resumed when the store works again" response=`
		return strings.Contains(log, failed+id) && strings.Contains(log, failed+doomed.ID)
	})
	_, err = c.Responses.Cancel(t.Context(), doomed.ID)
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a cancel that cannot be stored: got %v", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Responses.Cancel(t.Context(), doomed.ID); err != nil || r.Status != "cancelled" {
		t.Errorf("a cancel when there is room again: got %v, %v", r, err)
	}
	for read() {
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if diff := cmp.Diff(want.String(), told.String()); diff != "" {
		t.Errorf("the stream's events (-want +got):\n%s", diff)
	}
	r, err := c.Responses.Get(t.Context(), id, responses.ResponseGetParams{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{want.String()}, stdouts(r)); diff != "" || r.Status != "completed" {
		t.Errorf("status %s, output (-want +got):\n%s", r.Status, diff)
	}
	if resp, err := http.Get(s.url + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the server is not well: %v", err)
	}
}

// fill fills a disk to its last byte with a file, which may be there.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for len(block) > 0 {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}
