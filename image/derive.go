package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/beneath"
	"github.com/berth-run/berth/layer"
)

// A Change is a snapshot's layer on top of a template.
type Change struct {
	Template string `json:"template"` // digest of the template below
	Digest   string `json:"digest"`   // sha256:… of the uncompressed layer
}

// Derive creates a template from another template and a layer, and names it. Hard links
// share unchanged files between the two. Entries of the layer below ".berth" are not part
// of its file system and are dropped.
func (l *Store) Derive(ctx context.Context, as string, change Change, content io.Reader) (Template, error) {
	if !namePattern.MatchString(as) {
		return Template{}, fmt.Errorf("the name %q must match %s", as, namePattern)
	}
	base, err := l.Get(change.Template)
	if err != nil {
		return Template{}, err
	}
	hold, err := l.Hold(base.Digest)
	if err != nil {
		return Template{}, err
	}
	defer hold.Close()
	using, err := l.shareLock(ctx, buildLock)
	if err != nil {
		return Template{}, err
	}
	defer using.Close()
	dir, err := os.MkdirTemp(l.dir, "building-*")
	if err != nil {
		return Template{}, err
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "template", "rootfs")
	if err := linkTree(ctx, base.Rootfs, root); err != nil {
		return Template{}, err
	}
	if err := applyChange(ctx, root, content); err != nil {
		return Template{}, err
	}
	t := Template{CreatedAt: time.Now().UTC().Truncate(time.Second), Config: base.Config, Snapshot: &change}
	return l.install(ctx, name{name: as}, t, filepath.Dir(root))
}

// applyChange applies a snapshot's layer and checks that the result still has a shell.
func applyChange(ctx context.Context, root string, content io.Reader) error {
	r, err := beneath.Open(root)
	if err != nil {
		return err
	}
	defer r.Close()
	a := &layer.Applier{Root: r, Owners: isRoot(), Notes: !isRoot(), Limits: layer.Limits{Bytes: DefaultMaxBytes},
		Take: func(name string, _ *tar.Header, _ io.Reader) (bool, error) {
			return name == ".berth" || strings.HasPrefix(name, ".berth/"), nil
		}}
	content = until(ctx, content, nil)
	if err := a.Apply(content); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err // the content does not match the snapshot's digest
	}
	in, err := openRoot(root)
	if err != nil {
		return err
	}
	defer in.Close()
	return checkShell(in)
}

// linkTree copies the directories of a tree and hard-links all else. This is safe because
// applying a layer replaces files and never changes them in place.
func linkTree(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	owners, err := layer.OwnersOf(from)
	if err != nil {
		return err
	}
	if owners.Noted() == isRoot() {
		return fmt.Errorf("the template at %s was made by another user", from)
	}
	var made []pendingDir
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		target := to + path[len(from):]
		if !d.IsDir() {
			return os.Link(path, target) // links a symbolic link itself, not its target
		}
		st, err := owners.Lstat(path)
		if err != nil {
			return err
		}
		made = append(made, pendingDir{target, st})
		return os.Mkdir(target, 0o700)
	})
	if err != nil {
		return err
	}
	for i := len(made) - 1; i >= 0; i-- { // children first: adding them changes a directory's time
		if err := made[i].describe(); err != nil {
			return err
		}
	}
	return nil
}

// A pendingDir is a copied directory whose mode, owner and times are set last.
type pendingDir struct {
	path string
	like unix.Stat_t
}

func (c pendingDir) describe() error {
	f, err := os.Open(c.path)
	if err != nil {
		return err
	}
	defer f.Close()
	at := time.Unix(c.like.Mtim.Unix())
	return errors.Join(own(f, int(c.like.Uid), int(c.like.Gid), c.like.Mode&0o7777), os.Chtimes(c.path, at, at))
}
