package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// A lost connection does not end the container: the guest is connected again.
func TestConnectionIsMadeAgain(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	r := h.run(id)
	b := h.driver.box(string(id))
	b.mu.Lock()
	for _, c := range b.conns {
		c.Close()
	}
	b.mu.Unlock()
	os.Remove(filepath.Join(h.work(id), "held"))
	if err := <-r.done; err != nil {
		t.Errorf("the call ended with %v", err)
	}
	if got := h.sh(id, "wc -l <ran"); strings.TrimSpace(got) != "1" {
		t.Errorf("the command ran %s times", got)
	}
}

func TestCancelAndForget(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	r := h.run(id)
	shell := h.k.access.Shell(berth.Caller{Project: mine}, id)
	if err := shell.Cancel(t.Context(), r.callID); err != nil {
		t.Fatal(err)
	}
	if err := <-r.done; err != nil {
		t.Errorf("the cancelled call ended with %v", err)
	}
	if err := shell.Cancel(t.Context(), "call_none"); err != nil {
		t.Errorf("cancelling an unknown call: %v", err)
	}
	shell.Forget(t.Context(), r.callID)
	for _, err := range shell.Shell(t.Context(), guest.ShellCall{CallID: r.callID}) {
		if err == nil {
			t.Error("the guest still has the call")
		}
	}
}
