package drivertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// noDescriptors queries sandboxes while the process can open no file. A running sandbox is
// never reported as dead or not found, neither by the driver that started it nor by one that
// was opened since, and Destroy does not forget it.
func (s lifecycle) noDescriptors(t *testing.T) {
	dir := StateDir(t)
	d := s.Open(t, dir)
	b := Start(t, d, sandbox.Spec{ID: "lives", Template: s.Template})
	b.Must("echo precious >file")
	again := s.Open(t, dir)
	t.Cleanup(func() { s.destroyAll(t, again, dir) })
	for name, d := range map[string]sandbox.Driver{"its driver": d, "a driver opened again": again} {
		stats, err := withoutDescriptors(t, func() (sandbox.Stats, error) { return d.Stats(t.Context(), b.ID) })
		if errors.Is(err, sandbox.ErrNotFound) || err == nil && stats.State != sandbox.StateRunning {
			t.Errorf("Stats of %s without descriptors: got %+v, %v, want running or an error", name, stats, err)
		}
		ids, err := withoutDescriptors(t, func() ([]string, error) { return d.List(t.Context()) })
		if err == nil && !slices.Contains(ids, b.ID) {
			t.Errorf("List of %s without descriptors: got %q without an error", name, ids)
		}
		if stats, err := d.Stats(t.Context(), b.ID); err != nil || stats.State != sandbox.StateRunning {
			t.Errorf("Stats of %s afterwards: got %+v, %v, want running", name, stats, err)
		}
	}
	if got := Attach(t, again, b.ID).Must("cat file"); got != "precious" {
		t.Errorf("file: got %q, want %q", got, "precious")
	}

	_, err := withoutDescriptors(t, func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return false, again.Destroy(ctx, b.ID)
	})
	ids, listErr := again.List(t.Context())
	if listErr != nil {
		t.Fatal(listErr)
	}
	if slices.Contains(ids, b.ID) && err == nil {
		t.Error("Destroy without descriptors: got no error, but the sandbox exists")
	}
	if err := again.Destroy(t.Context(), b.ID); err != nil {
		t.Errorf("Destroy afterwards: %v", err)
	}
}

// withoutDescriptors calls f while this process can open no file.
func withoutDescriptors[T any](t *testing.T, f func() (T, error)) (T, error) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	// Open descriptors stay open; poll needs a limit of one.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	if _, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("open: got %v, want %v", err, unix.EMFILE)
	}
	return f()
}
