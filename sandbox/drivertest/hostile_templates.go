package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/testsuite"
	"github.com/berth-run/berth/sandbox"
)

// HostileTemplates creates and starts sandboxes of templates in which links are where the driver mounts something or
// where it and the guest write. A project chooses its images, so it chooses these links. The driver refuses such a
// template, or what it mounts stays inside: nothing of the host is mounted, read or written.
func HostileTemplates(t *testing.T, d sandbox.Driver) {
	if testsuite.IsCore() && !testsuite.HasAttacks() {
		t.Skip("skipped: not in the core of the suite; run make test-system")
	}
	host := t.TempDir() // what the links lead to
	if err := os.Chmod(host, 0o777); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(host, "secret")
	if err := os.WriteFile(secret, []byte(canary), 0o666); err != nil {
		t.Fatal(err)
	}
	places := []string{".berth", "proc", "sys", "dev", "dev/shm", "dev/pts", "dev/null", "tmp", "run", "etc", "home",
		"root", "mnt", "mnt/data", "mnt/volumes", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/passwd",
		"etc/mtab"}
	if !hostileTemplate(t.Context(), t, d, "no-links", smallTemplate(t), "no links") {
		t.Error("a template without links does not start")
	}
	started := 0
	for i, place := range places {
		for j, to := range []string{host, strings.Repeat("../", 20) + host[1:]} {
			rootfs := smallTemplate(t)
			if strings.HasPrefix(place, "etc/") || place == "dev/null" {
				to += "/secret"
			}
			at := filepath.Join(rootfs, place)
			if err := os.RemoveAll(at); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, at); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s -> %s", place, to)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if hostileTemplate(ctx, t, d, fmt.Sprintf("links-%d-%d", i, j), rootfs, name) {
				started++
			}
			cancel()
			entries, err := os.ReadDir(host)
			got, readErr := os.ReadFile(secret)
			if err != nil || readErr != nil || len(entries) != 1 || string(got) != canary {
				t.Fatalf("%s: the host has %v, %q, %v, %v", name, entries, got, err, readErr)
			}
		}
	}
	t.Logf("%d of %d sandboxes started", started, 2*len(places))
}

// smallTemplate returns a root file system in which a guest starts.
func smallTemplate(t *testing.T) string {
	rootfs := t.TempDir()
	if err := os.Chmod(rootfs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "etc", "mnt/data", "run", "home/user", "root"} {
		if err := os.MkdirAll(filepath.Join(rootfs, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	users := "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(rootfs, "etc/passwd"), []byte(users), 0o644); err != nil {
		t.Fatal(err)
	}
	return rootfs
}

// hostileTemplate reports whether a sandbox of a template starts. Then it looks for the host's file in it.
func hostileTemplate(ctx context.Context, t *testing.T, d sandbox.Driver, id, rootfs, name string) bool {
	err := d.Create(ctx, sandbox.Spec{ID: id, Template: sandbox.Template{Path: rootfs}})
	defer func() {
		if err := d.Destroy(context.WithoutCancel(ctx), id); err != nil {
			t.Errorf("%s: Destroy: %v", name, err)
		}
	}()
	if err == nil {
		err = d.Start(ctx, id)
	}
	if ctx.Err() != nil {
		t.Errorf("%s: not refused in time: %v", name, err)
	}
	if err != nil {
		t.Logf("%s: %v", name, err)
		return false
	}
	b := Attach(t, d, id)
	defer b.Client.Close()
	for _, dir := range []string{"/mnt/data", "/tmp", "/.berth", "/etc"} {
		_ = b.Client.WriteFile(ctx, dir, "written", "", strings.NewReader("by the sandbox")) // it may fail
	}
	for _, path := range []string{"/.berth/secret", "/mnt/data/secret", "/tmp/secret", "/etc/hosts", "/etc/hostname",
		"/etc/passwd", "/dev/shm/secret", "/proc/secret", "/home/secret", "/mnt/volumes/secret", "/root/secret"} {
		r, _, err := b.Client.ReadFile(ctx, filepath.Dir(path), filepath.Base(path), "")
		if err != nil {
			continue
		}
		got := make([]byte, 4096)
		n, _ := r.Read(got)
		r.Close()
		if strings.Contains(string(got[:n]), canary) {
			t.Errorf("%s: %s has the content of the host", name, path)
		}
	}
	return true
}
