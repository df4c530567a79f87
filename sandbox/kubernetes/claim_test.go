package kubernetes

import (
	"bufio"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/kubetest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// openShared opens the driver of one of the servers that share a cluster's sandboxes.
func openShared(t *testing.T, c *kubetest.Cluster, server, namespace string) *Driver {
	return openTest(t, c, drivertest.StateDir(t), Options{Namespace: namespace, Server: server,
		Instance: "0123456789ab"})
}

// A server takes over the sandbox of another one, with its processes. The former one cannot reach,
// see or remove it, not even over a connection that it has.
func TestClaim(t *testing.T) { testClaim(t, kubetest.Namespace) }

func testClaim(t *testing.T, namespace string) {
	c := kubetest.Start(t)
	a, b := openShared(t, c, "node-a", namespace), openShared(t, c, "node-b", namespace)
	box := drivertest.Start(t, a, sandbox.Spec{ID: "moved", Template: drivertest.Template(t)})
	box.Must("echo kept >/tmp/file")
	call := guest.ShellCall{CallID: "call_moved",
		Commands: []string{"echo once >>/tmp/count; while [ ! -e /tmp/go ]; do sleep 0.1; done; cat /tmp/count"},
		Timeout:  time.Hour}
	interrupted := make(chan error, 1)
	go func() {
		for _, err := range box.Client.Shell(t.Context(), call) {
			if err != nil {
				interrupted <- err
			}
		}
		close(interrupted)
	}()
	box.Must("while [ ! -e /tmp/count ]; do sleep 0.1; done")
	if ids, err := b.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("List of another server: got %q, %v", ids, err)
	}
	if err := b.Destroy(t.Context(), box.ID); err != nil {
		t.Errorf("Destroy by another server: %v", err)
	}
	if _, err := b.Dial(t.Context(), box.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Dial by another server: got %v, want %v", err, sandbox.ErrNotFound)
	}
	if servers, err := b.Claimed(t.Context()); err != nil || servers[box.ID] != "node-a" {
		t.Errorf("Claimed: got %v, %v", servers, err)
	}
	// A connection from before the claim ends when the new server connects.
	old, err := a.Dial(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	for range 2 { // the second time changes nothing
		if err := b.Claim(t.Context(), box.ID, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Claim(t.Context(), box.ID, 1); !errors.Is(err, sandbox.ErrClaimed) {
		t.Errorf("a second claim with the same epoch: got %v, want %v", err, sandbox.ErrClaimed)
	}
	moved := drivertest.Attach(t, b, box.ID)
	if got := moved.Must("cat /tmp/file"); got != "kept" {
		t.Errorf("the new server reads %q", got)
	}
	if err := old.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(old).ReadByte(); err == nil {
		t.Error("the former server's connection goes on")
	}
	// One with the old epoch is refused by the guest, should it come late.
	name, err := a.names.pod(box.ID)
	if err != nil {
		t.Fatal(err)
	}
	late, err := a.client.exec(t.Context(), name, guestPath, "dial", guestSocket, "0")
	if err == nil {
		defer late.Close()
		err = late.greeted()
	}
	if err == nil || !strings.Contains(err.Error(), "another server has claimed the sandbox") {
		t.Errorf("a late connection: got %v, want the guest's refusal", err)
	}
	if ids, err := a.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("List of the former server: got %q, %v", ids, err)
	}
	if _, err := a.Stats(t.Context(), box.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Stats by the former server: got %v, want %v", err, sandbox.ErrNotFound)
	}
	if err := a.Destroy(t.Context(), box.ID); err != nil {
		t.Errorf("Destroy by the former server: %v", err)
	}
	// The command continues, and its call is collected: it runs once.
	if err := <-interrupted; err == nil {
		t.Error("the former server's call goes on")
	}
	moved.Must("touch /tmp/go")
	call.Known = true
	var out strings.Builder
	for ev, err := range moved.Client.Shell(t.Context(), call) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == guest.ShellStdout {
			out.Write(ev.Data)
		}
	}
	if out.String() != "once\n" {
		t.Errorf("the call printed %q, want that it ran once", out.String())
	}
	if err := b.Destroy(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, c, b.client.podPath(name))
	if err := b.Claim(t.Context(), box.ID, 2); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Claim of a sandbox that is gone: got %v, want %v", err, sandbox.ErrNotFound)
	}
}

// The same at the level of requests, with a real guest: claims and deletions survive changes of a Pod's
// status by the cluster, and the last epoch wins.
func TestClaimRequests(t *testing.T) {
	api := newAPIServer(t)
	a, b := api.driver("node-a"), api.driver("node-b")
	name := api.add(a, "moved")
	api.guest(name)
	api.add(a, "other")
	first := drivertest.Attach(t, a, "moved")
	if got := first.Must("echo kept >file; cat file"); got != "kept" {
		t.Fatalf("got %q", got)
	}
	old, err := a.Dial(t.Context(), "moved")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	api.changes = 3
	if err := b.Claim(t.Context(), "moved", 1); err != nil {
		t.Fatalf("Claim while the Pod changes: %v", err)
	}
	if err := a.Claim(t.Context(), "moved", 1); !errors.Is(err, sandbox.ErrClaimed) {
		t.Errorf("a claim with the same epoch: got %v, want %v", err, sandbox.ErrClaimed)
	}
	if _, err := a.Dial(t.Context(), "moved"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Dial by the former server: got %v, want %v", err, sandbox.ErrNotFound)
	}
	if got := drivertest.Attach(t, b, "moved").Must("cat file"); got != "kept" {
		t.Errorf("the new server reads %q", got)
	}
	if err := old.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the former server's connection: got %v, want its end", err)
	}
	late, err := a.client.exec(t.Context(), name, guestPath, "dial", guestSocket, "0")
	if err == nil {
		defer late.Close()
		err = late.greeted()
	}
	if err == nil || !strings.Contains(err.Error(), "another server has claimed the sandbox") {
		t.Errorf("a late connection: got %v, want the guest's refusal", err)
	}
	if _, err := a.Stats(t.Context(), "moved"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Stats by the former server: got %v, want %v", err, sandbox.ErrNotFound)
	}
	if err := a.Destroy(t.Context(), "moved"); err != nil {
		t.Errorf("Destroy by the former server: %v", err)
	}
	for d, want := range map[*Driver][]string{a: {"other"}, b: {"moved"}} {
		if ids, err := d.List(t.Context()); err != nil || !slices.Equal(ids, want) {
			t.Errorf("List of %s: got %q, %v, want %q", d.opts.Server, ids, err, want)
		}
	}
	if all, err := a.Claimed(t.Context()); err != nil || !maps.Equal(all, map[string]string{"moved": "node-b",
		"other": "node-a"}) {
		t.Errorf("Claimed: got %v, %v", all, err)
	}
	api.changes = 3
	if err := b.Destroy(t.Context(), "moved"); err != nil {
		t.Fatalf("Destroy while the Pod changes: %v", err)
	}
	if err := b.Claim(t.Context(), "moved", 2); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Claim of a sandbox that is gone: got %v, want %v", err, sandbox.ErrNotFound)
	}
}
