package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth/internal/longtest"
)

// TestGuestIsStopped has root in a container stop its guest. The call that does it ends
// within the time that a guest has to answer, those that follow fail immediately, others are
// served, and the container can be deleted.
func TestGuestIsStopped(t *testing.T) {
	longtest.Skip(t) // TestStoppedGuest in package sandbox is the core of it
	s := newServer(t)
	p := &planted{server: s}
	id, other := p.create("/containers", `{"name":"stopped"}`), p.create("/containers", `{"name":"other"}`)
	p.shell(other, "true")
	began := time.Now()
	if out, errs, err := s.berth("exec", id, "--", "sh", "-c", "sudo kill -STOP 1; sleep 1000"); err == nil {
		t.Fatalf("the call that stops the guest: got %q, %s, and no error", out, errs)
	}
	first := time.Since(began)
	c := s.client(option.WithMaxRetries(0))
	began = time.Now()
	for range 5 {
		_, err := c.Containers.Files.New(t.Context(), id,
			openai.ContainerFileNewParams{File: openai.File(strings.NewReader(""), "late", "text/plain")})
		if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != 503 || !strings.Contains(e.Message,
			"does not answer") {
			t.Errorf("a call that follows: got %v, want 503 and that it does not answer", err)
		}
	}
	if next := time.Since(began) / 5; next > 3*time.Second {
		t.Errorf("each of the calls that follow took %v", next)
	}
	p.shell(other, "true")
	if err := c.Containers.Delete(t.Context(), id); err != nil {
		t.Errorf("deleting it: %v", err)
	}
	t.Logf("the call that stops the guest took %v", first)
	if first > 45*time.Second { // 15 seconds and a busy machine; it was 58
		t.Errorf("the call that stops the guest took %v", first)
	}
}
