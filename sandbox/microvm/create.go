package microvm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// Create creates the sandbox's disk and its cgroup, and at the first use the image of its
// template.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) error {
	s, err := d.base.At(spec.ID)
	if err != nil {
		return fmt.Errorf("microvm: create: %w", err)
	}
	if _, err := spec.Template.Directory(); err != nil {
		return fmt.Errorf("microvm: create %s: %w", spec.ID, err)
	}
	if len(spec.Mounts) > 0 && d.share == "" {
		return fmt.Errorf("microvm: create %s: mounts: %w", spec.ID, errors.ErrUnsupported)
	}
	if err := sandbox.CheckMounts(spec.Mounts); err != nil {
		return fmt.Errorf("microvm: create %s: %w", spec.ID, err)
	}
	spec.Limits = spec.Limits.WithDefaults()
	image, err := d.image(ctx, spec.Template)
	if err != nil {
		return fmt.Errorf("microvm: create %s: image of %s: %w", spec.ID, spec.Template.Path, err)
	}
	err = d.base.Dir.Create(s.id, func(dir string) error { return d.fill(ctx, dir, image, spec) })
	if err != nil {
		return fmt.Errorf("microvm: create: %w", err)
	}
	// From here on List returns the sandbox and Destroy removes all of it.
	if err := d.makeGroup(s, spec.Limits, len(spec.Mounts) > 0); err != nil {
		err = errors.Join(err, d.Destroy(context.WithoutCancel(ctx), s.id))
		return fmt.Errorf("microvm: create %s: cgroup: %w", s.id, err)
	}
	return nil
}

// makeGroup creates the sandbox's cgroup, for QEMU and the program that serves mounts.
func (d *Driver) makeGroup(s instance, limits sandbox.Limits, mounts bool) error {
	limits.Memory += d.machine.overhead()
	pids := hostPIDs(limits)
	if mounts {
		limits.Memory += shareMemory
		pids += sharePIDs
	}
	return s.cgroup.Create(limits, pids)
}

// fill creates the initial files of the sandbox's directory.
func (d *Driver) fill(ctx context.Context, dir, image string, spec sandbox.Spec) error {
	for _, sub := range []string{"run", sealed} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	if d.seals {
		if err := host.Seal(filepath.Join(dir, sealed), host.NewSealKey()); err != nil {
			return err
		}
	}
	rec := record{BootID: d.base.BootID, Image: image, UID: newUID(), Limits: spec.Limits,
		Mounts: mountRecords(spec.Mounts)}
	if len(rec.Mounts) > 0 {
		rec.Share = newUID() &^ (shareUsers - 1)
	}
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "sandbox.json"), raw, 0o600); err != nil {
		return err
	}
	if err := writeBoot(filepath.Join(dir, sealed), bootConfig(spec)); err != nil {
		return err
	}
	return makeDisk(ctx, filepath.Join(dir, sealed), spec.Limits.Disk)
}

// firstUID is the start of the range of QEMU's users: 2^28 numbers that are free in systemd's
// list of users and groups.
const firstUID = 1879048192

// newUID returns an unused user id. QEMU owns no file with it. It prevents sandboxes from
// signaling and tracing each other if their namespaces fail.
func newUID() int {
	var b [4]byte
	rand.Read(b[:])
	return firstUID + int(binary.BigEndian.Uint32(b[:])>>4)
}
