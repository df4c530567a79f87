package microvm

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestChooseMachine opens the driver without a configured accelerator, on machines with and
// without a working KVM: it chooses by a trial, logs the result, and does not repeat the trial.
func TestChooseMachine(t *testing.T) {
	tested := openTest(t, drivertest.StateDir(t)) // skips without QEMU
	dir := drivertest.StateDir(t)
	open := func(accel string) (*Driver, string, error) {
		var log bytes.Buffer
		opts := tested.opts
		opts.StateDir, opts.Accel, opts.Logger = dir, accel, slog.New(slog.NewTextHandler(&log, nil))
		d, err := Open(opts)
		return d, log.String(), err
	}
	d, said, err := open("")
	if err != nil {
		t.Fatal(err)
	}
	tries := strings.Count(said, "a machine does not start")
	switch emulated := d.Emulated(); {
	case emulated && (tries != 2 || !strings.Contains(said, "sandboxes are emulated") || d.Features().Slowness <= 1):
		t.Errorf("emulated, slowness %v, after %d machines did not start: %s", d.Features().Slowness, tries, said)
	case !emulated && (d.Features().Slowness != 0 || strings.Contains(said, "sandboxes are emulated")):
		t.Errorf("with KVM, slowness %v: %s", d.Features().Slowness, said)
	}
	var known probeResult
	path := filepath.Join(dir, "machine.json")
	if err := json.Unmarshal([]byte(readFile(t, path)), &known); err != nil {
		t.Fatal(err)
	}
	if got := (machine{known.Accel, known.Kind}); got != d.machine {
		t.Errorf("stored: got %v, want %v", got, d.machine)
	}

	again, said, err := open("")
	if err != nil || again.machine != d.machine || strings.Contains(said, "a machine does not start") {
		t.Errorf("the second time: got %v, %v, and %s, want %v without a trial", again.machine, err, said, d.machine)
	}
	// If only KVM is allowed, it works or is an error.
	if forced, _, err := open("kvm"); d.Emulated() != (err != nil) || err == nil && forced.Emulated() {
		t.Errorf("with KVM alone: got %v", err)
	} else if err != nil && !strings.Contains(err.Error(), "KVM does not work on this machine") {
		t.Errorf("with KVM alone: got %v, want an error about KVM", err)
	}
	// After a restart of the host the result may differ.
	known.BootID = "another"
	raw, _ := json.Marshal(known)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, said, err = open(""); err != nil || strings.Count(said, "a machine does not start") != tries {
		t.Errorf("after a restart: got %v and %s, want %d failed machines", err, said, tries)
	}
}
