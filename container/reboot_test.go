package container

import (
	"testing"

	"github.com/berth-run/berth"
)

// A reboot leaves the files of a container, its limits and its network, and ends everything else.
func TestReboot(t *testing.T) {
	h, a := newArchive(t)
	h.uploads["file-1"] = upload{"a.txt", "hello "}
	id := h.create(CreateRequest{MemoryLimit: "4g", FileIDs: []berth.FileID{"file-1"}, Env: []string{"COLOUR=red"}}).ID
	h.sh(id, "echo old >old")
	before := h.driver.box(string(id))
	if err := h.k.Reboot(t.Context(), mine, id, []string{"COLOUR=blue"}); err != nil {
		t.Fatal(err)
	}
	if got := h.sh(id, `cat a.txt old; echo "$COLOUR"`); got != "hello old\nblue\n" {
		t.Errorf("got %q", got)
	}
	after := h.driver.box(string(id))
	if after == before || after.spec.Limits != before.spec.Limits {
		t.Errorf("the sandbox is the same or has other limits: %+v", after.spec)
	}
	if c := h.get(id); c.Status != berth.ContainerRunning || c.Berth.Starting || c.Berth.Paused {
		t.Errorf("got %s %+v", c.Status, c.Berth)
	}
	if left := a.list(t, mine); len(left) > 0 || a.blobs(t) > 0 {
		t.Errorf("%d snapshots and %d contents are left", len(left), a.blobs(t))
	}
	h.driver.until(1)
}

// A container that is in use does not start anew.
func TestRebootInUse(t *testing.T) {
	h, _ := newArchive(t)
	id := h.ready()
	_, release, err := h.k.access.Guest(t.Context(), berth.Caller{Project: mine}, id)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, h.k.Reboot(t.Context(), mine, id, nil), berth.CodeConflict, "", "is in use")
	release()
	if err := h.k.Reboot(t.Context(), mine, id, nil); err != nil {
		t.Error(err)
	}
}

// A server that dies during a reboot leaves what the next one needs to repeat it.
func TestCrashDuringReboot(t *testing.T) {
	for _, place := range []string{"before store update", "after store update", "before destroy", "after destroy",
		"before create", "after start", "after dial"} {
		t.Run(place, func(t *testing.T) {
			h, _ := newArchive(t)
			c := newCrasher(h)
			c.uploads["file-1"] = upload{"a.txt", "hello "}
			id := c.create(CreateRequest{MemoryLimit: "4g", FileIDs: []berth.FileID{"file-1"}}).ID
			c.sh(id, "echo old >old")
			s := c.k.index.lookup(mine, id)
			c.settle()
			c.stopAt(place)
			ended := make(chan error, 1)
			go func() { ended <- c.k.Reboot(t.Context(), mine, id, []string{"COLOUR=blue"}) }()
			c.die()
			if err := <-ended; err == nil && place != "after store update" {
				t.Error("Reboot returned no error")
			}
			if s.life.Err() == nil {
				t.Error("the former server has the container")
			}
			c.start()
			if got, err := c.trySh(t.Context(), id, berth.NewID(berth.PrefixShellCall), "cat a.txt old"); err != nil ||
				got != "hello old\n" {
				t.Fatalf("got %q, %v", got, err)
			}
			if got := c.get(id); got.Status != berth.ContainerRunning || got.Berth.Starting {
				t.Errorf("got %s %+v", got.Status, got.Berth)
			}
			c.driver.until(1)
		})
	}
}
