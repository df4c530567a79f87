package guest_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/berth-run/berth/guest"
)

// asleep waits until the socket is gone.
func (b *box) asleep(t *testing.T) {
	t.Helper()
	for {
		if _, err := os.Lstat(b.socket); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("the guest does not sleep")
		}
		runtime.Gosched()
	}
}

// A guest that sleeps has no socket and no connections, and its processes go on.
func TestSleep(t *testing.T) {
	b := newBox(t)
	wake := filepath.Join(filepath.Dir(b.socket), "wake")
	if err := os.WriteFile(wake, nil, 0o600); err != nil { // from a time when the guest was awake
		t.Fatal(err)
	}
	c, other := b.client(t), b.client(t)
	one(t, other,
		"(touch ran; until test -e go; do sleep .01; done; touch went) >/dev/null 2>&1 & until test -e ran; do :; done")
	for range 2 { // again and again
		if err := c.Sleep(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.asleep(t)
		if err := c.Ping(t.Context()); err == nil {
			t.Error("it answers")
		}
		if err := other.Ping(t.Context()); err == nil {
			t.Error("it answers on another connection")
		}
		if err := os.WriteFile(wake, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for c.Ping(t.Context()) != nil {
			runtime.Gosched()
		}
	}
	if got := one(t, other, "touch go; until test -e went; do :; done; echo on"); got.Stdout != "on\n" {
		t.Errorf("got %+v", got)
	}
}

// A guest is not sent to sleep twice.
func TestSleepTwice(t *testing.T) {
	b := newBox(t)
	asked := make(chan error, 8)
	var clients []*guest.Client
	for range cap(asked) {
		c := b.client(t)
		clients = append(clients, c)
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range clients {
		go func() { asked <- c.Sleep(t.Context()) }()
	}
	slept := 0
	for range cap(asked) {
		if <-asked == nil {
			slept++
		}
	}
	if slept != 1 {
		t.Errorf("%d of %d sent it to sleep, want 1", slept, cap(asked))
	}
	b.asleep(t)
}
