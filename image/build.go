package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Build builds a template from a recipe and gives it the recipe's name. If a template with
// the same content exists, it only sets the name. Builds run one at a time. Build needs
// mmdebstrap, and root or subordinate ids: see CheckBuild. Without root, the template lacks
// owners of links and capabilities of files.
//
// It calls progress, if not nil, from another goroutine, never concurrently and never after
// it has returned.
func (l *Store) Build(ctx context.Context, r Recipe, progress func(Progress)) (Template, error) {
	recipe := r.Digest()
	r, err := r.complete()
	if err != nil {
		return Template{}, err
	}
	if err := CheckBuild(); err != nil {
		return Template{}, err
	}
	tool, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return Template{}, fmt.Errorf("find mmdebstrap: %w", err)
	}
	lock, err := l.lock(ctx, buildLock)
	if err != nil {
		return Template{}, err
	}
	defer lock.Close()
	dir, err := os.MkdirTemp(l.dir, "building-*")
	if err != nil {
		return Template{}, err
	}
	defer os.RemoveAll(dir)

	b := &build{recipe: r, tool: tool, dir: dir, cache: filepath.Join(l.dir, "cache", r.Suite), lock: lock,
		meter: newMeter(progress)}
	if err := b.run(ctx); err != nil {
		return Template{}, err
	}
	b.meter.finish("reading the built files")
	return l.install(ctx, name{name: r.Name, recipe: recipe},
		Template{CreatedAt: time.Now().UTC().Truncate(time.Second), Config: Config{Env: r.Env}}, b.template())
}

// install moves a template from dir into the store and names it. It computes the digest,
// size and packages.
func (l *Store) install(ctx context.Context, as name, t Template, dir string) (Template, error) {
	root := filepath.Join(dir, "rootfs")
	var err error
	if t.Digest, t.Bytes, err = digest(root, t.Config); err != nil {
		return t, err
	}
	if t.Packages, err = packages(root); err != nil {
		return t, err
	}
	t.Rootfs = root
	found, err := t.FindContents()
	if err != nil {
		return t, err
	}
	t.Contents = &found
	if err := t.write(dir); err != nil {
		return t, err
	}
	if err := flush(dir); err != nil {
		return t, err
	}
	lock, err := l.lock(ctx, indexLock)
	if err != nil {
		return t, err
	}
	defer lock.Close()
	old, err := l.load(name{digest: t.Digest})
	switch {
	case errors.Is(err, ErrNotFound):
		err = os.Rename(dir, l.path(t.Digest))
	case err == nil && (t.Image != nil || t.Snapshot != nil):
		old.Image, old.Snapshot = t.Image, t.Snapshot
		err = old.write(l.path(t.Digest))
	}
	if err != nil {
		return t, err
	}
	as.digest = t.Digest
	if before, err := l.Get(as.name); err == nil && before.Digest != t.Digest {
		l.touch(before.Digest)
	}
	if err := l.writeName(as); err != nil {
		return t, err
	}
	return l.Get(as.name)
}

// write replaces template.json in dir atomically.
func (t Template) write(dir string) error {
	text, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return err
	}
	next := filepath.Join(dir, ".template.json")
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, "template.json"))
}

// flush syncs the file system that holds dir, so that a named template is complete even
// after a power cut.
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
}

var statusField = regexp.MustCompile(`(?m)^(Package|Version|Status): (.*)$`)

// maxFile bounds a template's file that is read into memory.
const maxFile = 32 << 20

// packages returns the installed Debian packages as name=version, in order.
func packages(root string) ([]string, error) {
	in, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := in.read("var/lib/dpkg/status")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // not a Debian
	}
	if err != nil {
		return nil, err
	}
	var all []string
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		field := map[string]string{}
		for _, m := range statusField.FindAllStringSubmatch(stanza, -1) {
			field[m[1]] = m[2]
		}
		if field["Status"] == "install ok installed" {
			all = append(all, field["Package"]+"="+field["Version"])
		}
	}
	slices.Sort(all)
	return all, nil
}
