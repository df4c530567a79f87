package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/sandbox"
)

// repository is the name of templates' images.
const repository = "berth/template"

// templates imports templates into the engine as images.
type templates struct {
	client   *client.Client
	log      *slog.Logger
	instance string

	// keepTmp means that templates have a file in /tmp. gVisor mounts a tmpfs on an empty /tmp,
	// which would use memory instead of disk, and be in no snapshot.
	keepTmp bool

	importing sync.Mutex // a template is imported once
}

// tag returns the name of a template's image. Without a digest the template's directory, which
// never changes, is identified by its path and times: reading all of it would take a second at
// each start of the server.
func (t *templates) tag(template sandbox.Template) (string, error) {
	rootfs := template.Path
	fi, err := os.Stat(rootfs)
	if err != nil || !fi.IsDir() || !filepath.IsAbs(rootfs) {
		return "", fmt.Errorf("rootfs %q is not an absolute path of a directory", rootfs)
	}
	// The first number is the version of the images' format.
	key := fmt.Appendf(nil, "3\n%s\n%v\n", template.Digest, t.keepTmp)
	if template.Digest == "" {
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return "", fmt.Errorf("rootfs %q: no stat", rootfs)
		}
		key = fmt.Appendf(nil, "2\n%s\n%d\n%d\n%v\n", rootfs, st.Ino, fi.ModTime().UnixNano(), t.keepTmp)
	}
	sum := sha256.Sum256(key)
	return repository + ":" + hex.EncodeToString(sum[:16]), nil
}

// load imports the image, unless the engine has it.
func (t *templates) load(ctx context.Context, template sandbox.Template, tag string) error {
	t.importing.Lock()
	defer t.importing.Unlock()
	switch _, err := t.client.ImageInspect(ctx, tag); {
	case err == nil:
		return nil // another call imported it
	case !errdefs.IsNotFound(err):
		return fmt.Errorf("inspect image: %w", err)
	}
	began, rootfs := time.Now(), template.Path
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeTemplate(w, rootfs, t.keepTmp)) }()
	defer r.Close()
	changes := []string{
		"LABEL " + labelInstance + "=" + t.instance,
		// A $ would start a variable's name.
		"LABEL " + labelRootfs + "=" + strings.ReplaceAll(strconv.Quote(rootfs), "$", `\$`),
	}
	if template.Digest != "" {
		changes = append(changes, "LABEL "+labelDigest+"="+strconv.Quote(template.Digest))
	}
	if err := importImage(ctx, t.client, r, tag, changes); err != nil {
		return err
	}
	t.log.Info("docker: a template was copied into the engine", "rootfs", rootfs, "image", tag, "took",
		time.Since(began).Round(time.Millisecond))
	return nil
}

// writeTemplate writes a root file system as an archive. It starts with the files that the
// engine would add to every container, so that the engine adds none.
func writeTemplate(w io.Writer, rootfs string, keepTmp bool) error {
	out := tar.NewWriter(w)
	first := []*tar.Header{
		{Typeflag: tar.TypeReg, Name: "etc/hostname", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "etc/hosts", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "etc/resolv.conf", Mode: 0o644},
	}
	if keepTmp {
		first = append(first, &tar.Header{Typeflag: tar.TypeReg, Name: "tmp/.keep", Mode: 0o444})
	}
	for _, h := range first {
		if _, err := os.Lstat(filepath.Join(rootfs, h.Name)); err == nil {
			continue // a name may occur only once
		}
		h.ModTime = time.Unix(1, 0)
		if err := out.WriteHeader(h); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil { // without the end of the archive
		return err
	}
	r, diff := io.Pipe()
	defer r.Close()
	go func() {
		all := tar.NewWriter(diff)
		differ := layer.Differ{Root: rootfs}
		err := differ.Diff(all)
		diff.CloseWithError(errors.Join(err, all.Close()))
	}()
	_, err := layer.Make(w, r, "", layer.Limits{})
	return err
}

// readProgress reads the engine's progress reports of an import to their end.
func readProgress(r io.Reader) error {
	for dec := json.NewDecoder(r); ; {
		var line struct{ Error string }
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		if line.Error != "" {
			return errors.New(line.Error)
		}
	}
}

// current reports whether a tag is that of a template whose directory exists.
func (t *templates) current(template sandbox.Template, tag string) bool {
	now, err := t.tag(template)
	return err == nil && now == tag
}

// sweep removes the images that this state directory imported, unless a sandbox uses them or
// keep returns true. keep may be nil.
func (t *templates) sweep(ctx context.Context, keep func(t sandbox.Template, tag string) bool) error {
	all, err := t.client.ImageList(ctx, client.ImageListOptions{
		Filters: make(client.Filters).Add("label", labelInstance+"="+t.instance, labelRootfs)})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	for _, image := range all.Items {
		template := sandbox.Template{Digest: image.Labels[labelDigest], Path: image.Labels[labelRootfs]}
		if keep != nil && slices.ContainsFunc(image.RepoTags, func(tag string) bool { return keep(template, tag) }) {
			continue
		}
		_, err = t.client.ImageRemove(ctx, image.ID, client.ImageRemoveOptions{PruneChildren: true})
		if err != nil && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove image: %w", err)
		}
	}
	return nil
}

// importImage creates an image from the archive of a root file system.
func importImage(ctx context.Context, c *client.Client, archive io.Reader, tag string, changes []string) error {
	progress, err := c.ImageImport(ctx, client.ImageImportSource{Source: archive, SourceName: "-"}, tag,
		client.ImageImportOptions{Changes: changes})
	if err != nil {
		return fmt.Errorf("import %s: %w", tag, err)
	}
	defer progress.Close()
	if err := readProgress(progress); err != nil {
		return fmt.Errorf("import %s: %w", tag, err)
	}
	return nil
}
