package image

import (
	"context"
	"encoding/json"
	"errors"
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

// Build builds a template and gives it the recipe's name. If what comes out is
// there already, it only takes the name. Builds wait for each other. Needs root
// and mmdebstrap.
//
// progress, if not nil, is called one at a time, from another goroutine, and not
// after Build has returned.
func (l *Library) Build(ctx context.Context, r Recipe, progress func(Progress)) (Template, error) {
	recipe := r.Digest()
	r, err := r.complete()
	if err != nil {
		return Template{}, err
	}
	if os.Geteuid() != 0 {
		return Template{}, errors.New("building templates needs root, as do the sandboxes that start from them")
	}
	tool, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return Template{}, errors.New("building templates needs mmdebstrap: apt-get install mmdebstrap")
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

	b := &build{recipe: r, tool: tool, dir: dir, cache: filepath.Join(l.dir, "cache", r.Suite), lock: lock, meter: newMeter(progress)}
	if err := b.run(ctx); err != nil {
		return Template{}, err
	}
	b.meter.finish("reading what was built")
	return l.keep(ctx, r.Name, recipe, b.template())
}

// keep moves a built template to its place and names it.
func (l *Library) keep(ctx context.Context, as, recipe, dir string) (Template, error) {
	t := Template{CreatedAt: time.Now().UTC().Truncate(time.Second)}
	root := filepath.Join(dir, "rootfs")
	var err error
	if t.Digest, t.Bytes, err = digest(root); err != nil {
		return t, err
	}
	if t.Packages, err = packages(root); err != nil {
		return t, err
	}
	text, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return t, err
	}
	if err := os.WriteFile(filepath.Join(dir, "template.json"), text, 0o644); err != nil {
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
	if _, err := os.Stat(l.path(t.Digest)); errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(dir, l.path(t.Digest))
		if err != nil {
			return t, err
		}
	} else if err != nil {
		return t, err
	}
	if err := l.give(name{as, t.Digest, recipe}); err != nil {
		return t, err
	}
	return l.Get(as)
}

// flush writes everything in a directory's file system to the disk: a template
// that a name stands for is whole, also after a power cut.
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

var statusField = regexp.MustCompile(`(?m)^(Package|Version|Status): (.*)$`)

// packages returns the installed packages as name=version, in order.
func packages(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status"))
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
