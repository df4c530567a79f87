package microvm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-run/berth/sandbox"
)

// kernelPackage is Debian's package of the newest kernel for virtual machines.
const kernelPackage = "linux-image-cloud-amd64"

// A Kernel is a kernel for machines.
type Kernel struct {
	Image   string // path of vmlinuz
	Modules string // path of the directory of its modules
}

// FindKernel returns the newest kernel in a directory that FetchKernel filled, or into which a
// kernel package was unpacked.
func FindKernel(dir string) (Kernel, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Kernel{}, err
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return Kernel{}, err
	}
	slices.SortFunc(images, compareVersions)
	for _, image := range slices.Backward(images) {
		k := Kernel{Image: image, Modules: filepath.Join(dir, "lib/modules", strings.TrimPrefix(filepath.Base(image),
			"vmlinuz-"))}
		if _, err := os.Stat(k.Modules); err == nil {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("no kernel in %s; `berth image kernel` fetches one", dir)
}

// compareVersions compares names by the numbers in them: 6.1.0-9 before 6.1.0-10.
func compareVersions(a, b string) int {
	digit := func(r byte) bool { return '0' <= r && r <= '9' }
	for a != "" && b != "" {
		if !digit(a[0]) || !digit(b[0]) {
			if a[0] != b[0] {
				return int(a[0]) - int(b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		na, nb := len(a)-len(strings.TrimLeft(a, "0123456789")), len(b)-len(strings.TrimLeft(b, "0123456789"))
		va, vb := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
		if len(va) != len(vb) {
			return len(va) - len(vb)
		}
		if c := strings.Compare(va, vb); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

// FetchKernel downloads Debian's newest kernel for virtual machines from the host's package
// sources, without installing it, and unpacks it into dir, unless dir has it.
func FetchKernel(ctx context.Context, dir string) (Kernel, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Kernel{}, err
	}
	tmp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(tmp)
	// The lists are separate, so that the host's are neither needed nor changed.
	config := []string{"-qq", "-o", "APT::Sandbox::User=root", "-o", "Dir::State::Lists=" + tmp + "/lists", "-o",
		"Dir::Cache=" + tmp + "/cache"}
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(tmp, sub), 0o755); err != nil {
			return Kernel{}, err
		}
	}
	if _, err := run(ctx, tmp, "apt-get", append(config, "update")...); err != nil {
		return Kernel{}, err
	}
	name, err := newestKernel(ctx, config)
	if err != nil {
		return Kernel{}, err
	}
	if k, err := FindKernel(dir); err == nil && filepath.Base(k.Image) == "vmlinuz-"+strings.TrimPrefix(name,
		"linux-image-") {
		return k, nil
	}
	if _, err := run(ctx, tmp, "apt-get", append(config, "download", name)...); err != nil {
		return Kernel{}, err
	}
	archives, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(archives) != 1 {
		return Kernel{}, errors.Join(err, fmt.Errorf("download %s: got %d files, want 1", name, len(archives)))
	}
	if _, err := run(ctx, tmp, "dpkg-deb", "-x", archives[0], "unpacked"); err != nil {
		return Kernel{}, err
	}
	// Modules are moved first, because FindKernel searches for the image.
	for _, sub := range []string{"lib/modules", "boot"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return Kernel{}, err
		}
		entries, err := os.ReadDir(filepath.Join(tmp, "unpacked", sub))
		if err != nil {
			return Kernel{}, err
		}
		for _, e := range entries {
			to := filepath.Join(dir, sub, e.Name())
			if err := errors.Join(os.RemoveAll(to), os.Rename(filepath.Join(tmp, "unpacked", sub, e.Name()),
				to)); err != nil {
				return Kernel{}, err
			}
		}
	}
	return FindKernel(dir)
}

// newestKernel returns the package that kernelPackage depends on.
func newestKernel(ctx context.Context, config []string) (string, error) {
	out, err := run(ctx, "/", "apt-cache", append(config, "depends", "--no-recommends", "--no-suggests",
		kernelPackage)...)
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "Depends: "); ok && strings.HasPrefix(name,
			"linux-image-") {
			return name, nil
		}
	}
	return "", fmt.Errorf("the package sources have no %s", kernelPackage)
}

// run runs a program and returns its output. Its error includes the output.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(append(out, stderr.Bytes()...)))
	}
	return out, nil
}

// makeInitramfs writes the initial file system for the guest and the kernel into dir, unless it
// exists, and returns its path.
func makeInitramfs(dir, guest string, k Kernel) (string, error) {
	order, err := loadOrder(k.Modules, modules)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, path := range append([]string{guest}, order...) {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(hash, f)
		f.Close()
		if err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, hex.EncodeToString(hash.Sum(nil)[:8]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var archive bytes.Buffer
	if err := writeInitramfs(&archive, guest, order); err != nil {
		return "", err
	}
	return path, sandbox.WriteFile(path, archive.Bytes(), 0o644)
}
