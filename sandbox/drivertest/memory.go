package drivertest

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// counting is a program with its only state in memory. It prints the state on request, and
// records which requests it has answered.
const counting = `cat >count.py <<'END'
import os, time
n, answered = 0, set()
while True:
    n += 1
    for name in os.listdir("."):
        if name.startswith("ask-") and name not in answered:
            answered.add(name)
            with open("." + name, "w") as f:
                f.write(f"{n} {len(answered)}\n")
            os.rename("." + name, "answered-" + name[4:])
    time.sleep(.002)
END
setsid python3 count.py >/dev/null 2>&1 </dev/null & echo $! >pid`

// count returns the number of a sandbox's program, and how many requests it has answered.
func (b *Box) count(name string) (n, asked int) {
	b.tb.Helper()
	fields := strings.Fields(b.Must("touch ask-" + name + "; until test -e answered-" + name +
		"; do sleep .01; done; cat answered-" + name))
	if len(fields) != 2 {
		b.tb.Fatalf("the program printed %q", fields)
	}
	n, err := strconv.Atoi(fields[0])
	if err != nil {
		b.tb.Fatal(err)
	}
	asked, err = strconv.Atoi(fields[1])
	if err != nil {
		b.tb.Fatal(err)
	}
	return n, asked
}

// Checkpoint writes a sandbox's memory.
func (b *Box) Checkpoint() []byte {
	b.tb.Helper()
	if err := b.Client.Sleep(b.tb.Context()); err != nil {
		b.tb.Fatalf("Sleep: %v", err)
	}
	var out bytes.Buffer
	if err := b.Driver.(sandbox.Snapshotter).Checkpoint(b.tb.Context(), b.ID, &out); err != nil {
		b.tb.Fatalf("Checkpoint: %v", err)
	}
	return out.Bytes()
}

// Restore creates a sandbox from a checkpoint. It ends with the test.
func Restore(tb testing.TB, d sandbox.Driver, spec sandbox.Spec, image []byte) *Box {
	tb.Helper()
	if err := d.Create(tb.Context(), spec); err != nil {
		tb.Fatalf("Create: %v", err)
	}
	tb.Cleanup(func() {
		if err := d.Destroy(context.Background(), spec.ID); err != nil {
			tb.Errorf("Destroy: %v", err)
		}
	})
	if err := d.(sandbox.Snapshotter).Restore(tb.Context(), spec.ID, bytes.NewReader(image)); err != nil {
		tb.Fatalf("Restore: %v", err)
	}
	return Attach(tb, d, spec.ID)
}

// memory makes a checkpoint of a sandbox and starts others from it.
func (s contents) memory(t *testing.T) {
	d := s.open(t)
	if _, ok := d.(sandbox.Snapshotter); !ok {
		return
	}
	first := Start(t, d, sandbox.Spec{ID: "first", Template: s.Template})
	first.Must(counting)
	first.Must(`mkdir a; cd a; export COLOUR=blue; echo kept >kept; sudo sh -c 'echo kept >/etc/kept; head -c 3000000 /dev/urandom >/srv/noise'; cd ..`)
	noise := first.Must("md5sum /srv/noise")
	began, _ := first.count("one")
	image := first.Checkpoint()
	if after, asked := first.count("two"); after <= began || asked != 2 {
		t.Errorf("the original counted to %d after %d, with %d requests, want it to continue", after, began, asked)
	}
	for i, id := range []string{"second", "third", "fourth"} { // the first two from the same image
		next := Restore(t, d, sandbox.Spec{ID: id, Template: s.Template}, image)
		n, asked := next.count(id)
		if want := 2 + i/2; n <= began || asked != want {
			t.Errorf("%s: got %d after %d, with %d requests, want it to continue with %d requests", id, n, began, asked,
				want)
		}
		if got := next.Must(
			`echo "$COLOUR"; cat a/kept /etc/kept; md5sum /srv/noise; test ! -e answered-two; kill -0 $(cat pid)`); got != "blue\nkept\nkept\n"+noise {
			t.Errorf("%s: got %q", id, got)
		}
		if id == "third" { // a restored sandbox can be saved again
			image, began = next.Checkpoint(), n
		}
		next.Answers()
	}
}

// badMemory restores damaged checkpoints, and saves a sandbox that does not sleep.
func (s contents) badMemory(t *testing.T) {
	d, ok := s.open(t).(sandbox.Snapshotter)
	if !ok {
		return
	}
	b := Start(t, d, sandbox.Spec{ID: "first", Template: s.Template})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.Checkpoint(ctx, "first", &bytes.Buffer{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an awake guest: got %v, want %v", err, context.DeadlineExceeded)
	}
	b.Answers()
	image := b.Checkpoint()
	b.Answers()
	image[512] ^= 1 // in the version
	for name, image := range map[string][]byte{"foreign": image, "cut": image[:len(image)/2], "empty": nil} {
		if err := d.Create(t.Context(), sandbox.Spec{ID: name, Template: s.Template}); err != nil {
			t.Fatal(err)
		}
		err := d.Restore(t.Context(), name, bytes.NewReader(image))
		if err == nil || name == "foreign" && !errors.Is(err, sandbox.ErrForeign) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	notFound(t, "Checkpoint", d.Checkpoint(t.Context(), "none", &bytes.Buffer{}))
	notFound(t, "Restore", d.Restore(t.Context(), "none", bytes.NewReader(image)))
}
