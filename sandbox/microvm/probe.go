package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// probeTimeout bounds the start of a machine and its end for lack of disks. With KVM it takes
// half a second.
const probeTimeout = 10 * time.Second

// A probeResult is the result of trying machines.
type probeResult struct {
	BootID string `json:"boot_id"`
	QEMU   string `json:"qemu"`
	Kernel string `json:"kernel"`
	Accel  string `json:"accel"`
	Kind   string `json:"kind"`
}

// chooseMachine returns the first machine that starts. The existence of /dev/kvm proves little:
// in nested virtual machines it may open and run nothing. The result is stored until the host
// restarts.
func (d *Driver) chooseMachine() (machine, error) {
	path := filepath.Join(d.opts.StateDir, "machine.json")
	want := probeResult{BootID: d.base.BootID, QEMU: d.opts.QEMUPath, Kernel: d.kernel}
	var known probeResult
	if raw, err := os.ReadFile(path); err == nil && json.Unmarshal(raw, &known) == nil {
		m := machine{known.Accel, known.Kind}
		known.Accel, known.Kind = "", ""
		if known == want && (d.opts.Accel == "" || d.opts.Accel == m.accel) {
			return m, nil
		}
	}
	for _, m := range machines {
		if d.opts.Accel != "" && d.opts.Accel != m.accel {
			continue
		}
		if !m.emulated() {
			if err := d.try(m); err != nil {
				d.log.Info("microvm: a machine does not start", "accel", m.accel, "machine", m.kind, "err", err)
				continue
			}
		}
		want.Accel, want.Kind = m.accel, m.kind
		raw, err := json.Marshal(want)
		if err != nil {
			return machine{}, err
		}
		return m, sandbox.WriteFile(path, raw, 0o600)
	}
	return machine{}, errors.New("KVM does not work on this machine")
}

// try starts a machine without disks, in the same way as a sandbox's. The machine ends when its
// first program finds no disks.
func (d *Driver) try(m machine) (err error) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cgroup := d.cgroups.Group("berth-"+d.base.Instance, "probe.kvm") // not the id of a sandbox
	limits := sandbox.Limits{Memory: 256<<20 + m.overhead()}.WithDefaults()
	if err := cgroup.Create(limits, hostPIDs(limits)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeGroup(cgroup)) }()
	log, err := os.CreateTemp(d.opts.StateDir, "probe-")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	cmd, err := launch{driver: d, kvm: true, uid: newUID(), cgroup: cgroup, log: log, size: 1 << 20,
		args: append(m.base(), "-m", "256", "-smp", "1")}.start()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		raw, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w%s", errors.Join(context.Cause(ctx), err), quote("qemu", raw[:min(len(raw), consoleSize)]))
	}
	return nil
}

// removeTimeout bounds removeGroup.
const removeTimeout = 30 * time.Second

// removeGroup ends the processes in a cgroup and removes it.
func removeGroup(c host.Cgroup) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	return errors.Join(c.Kill(ctx), c.Remove(ctx))
}
