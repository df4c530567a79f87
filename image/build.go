package image

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Progress is where a build is.
type Progress struct {
	Step    string // in words, as the tool that builds has them
	Elapsed time.Duration
}

// Build builds a template from Debian packages with mmdebstrap and gives it the
// recipe's name. If what comes out is there already, it only takes the name.
// Progress, if not nil, is told of each step, from another goroutine.
func (l *Library) Build(ctx context.Context, r Recipe, progress func(Progress)) (Template, error) {
	if err := r.check(); err != nil {
		return Template{}, err
	}
	tool, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return Template{}, errors.New("building templates needs mmdebstrap: apt-get install mmdebstrap")
	}
	if r.Suite == "" {
		if r.Suite, err = hostSuite(); err != nil {
			return Template{}, err
		}
	}
	if len(r.Mirrors) == 0 {
		if r.Mirrors, err = hostMirrors(r.Suite); err != nil {
			return Template{}, err
		}
	}
	unlock, err := l.lock(ctx, true)
	if err != nil {
		return Template{}, err
	}
	defer unlock()
	dir, err := os.MkdirTemp(l.dir, "building-*")
	if err != nil {
		return Template{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // apt's own user must get through
		return Template{}, err
	}
	root := filepath.Join(dir, "template", "rootfs")
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return Template{}, err
	}
	began := time.Now()
	tell := func(step string) {
		if progress != nil {
			progress(Progress{Step: step, Elapsed: time.Since(began)})
		}
	}
	if err := l.debootstrap(ctx, tool, r, root, dir, tell); err != nil {
		return Template{}, err
	}
	tell("reading what was built")
	return l.keep(r.Name, filepath.Dir(root))
}

// debootstrap runs mmdebstrap. Downloaded packages are kept for the next time.
func (l *Library) debootstrap(ctx context.Context, tool string, r Recipe, root, dir string, tell func(string)) error {
	cache := filepath.Join(l.dir, "cache", r.Suite)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	args := []string{"--variant=minbase", "--format=directory", "--skip=download/empty", "--skip=essential/unlink",
		"--include=" + strings.Join(r.Packages, ","),
		`--aptopt=Acquire::Languages "none"`, `--aptopt=APT::Install-Recommends "false"`,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/info/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright",
		`--setup-hook=mkdir -p "$1/var/cache/apt/archives"`,
		"--setup-hook=sync-in " + quote(cache) + " /var/cache/apt/archives/",
		"--customize-hook=sync-out /var/cache/apt/archives " + quote(cache),
		"--customize-hook=" + setup,
	}
	for _, command := range r.Run {
		args = append(args, "--customize-hook=chroot \"$1\" sh -c "+quote(command))
	}
	args = append(args, "--customize-hook="+cleanup, r.Suite, root)
	cmd := exec.CommandContext(ctx, tool, append(args, r.Mirrors...)...)
	// A group of its own, so that an interrupt at the terminal ends the build
	// through ctx and mmdebstrap can clean up after itself.
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1", "TMPDIR="+dir, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	last := follow(stderr, tell)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("mmdebstrap: %w\n%s", err, last)
	}
	return nil
}

// follow tells of the steps that mmdebstrap names and returns its last lines.
func follow(r io.Reader, tell func(string)) string {
	var last []string
	lines := bufio.NewScanner(r)
	lines.Split(splitLines)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasSuffix(line, "%)") || strings.HasPrefix(line, "done") {
			continue
		}
		if last = append(last, line); len(last) > 30 {
			last = last[1:]
		}
		if step, ok := strings.CutPrefix(line, "I: "); ok && !strings.Contains(step, "hook") {
			tell(strings.TrimSuffix(step, "..."))
		}
	}
	return strings.Join(last, "\n")
}

// splitLines splits at \n and at \r, with which progress bars draw over themselves.
func splitLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// keep moves a built template to its place and names it.
func (l *Library) keep(name, dir string) (Template, error) {
	t := Template{Name: name, CreatedAt: time.Now().UTC().Truncate(time.Second)}
	var err error
	if t.Digest, t.Bytes, err = digest(filepath.Join(dir, "rootfs")); err != nil {
		return t, err
	}
	if t.Packages, err = packages(filepath.Join(dir, "rootfs")); err != nil {
		return t, err
	}
	text, err := json.MarshalIndent(t, "", "\t")
	if err != nil {
		return t, err
	}
	if err := os.WriteFile(filepath.Join(dir, "template.json"), text, 0o644); err != nil {
		return t, err
	}
	if _, err := os.Stat(l.path(t.Digest)); err != nil {
		if err := os.Rename(dir, l.path(t.Digest)); err != nil {
			return t, err
		}
	}
	pointer := filepath.Join(l.dir, "names", name)
	if err := os.WriteFile(pointer+".new", []byte(t.Digest+"\n"), 0o644); err != nil {
		return t, err
	}
	if err := os.Rename(pointer+".new", pointer); err != nil {
		return t, err
	}
	return l.Get(name)
}

var statusField = regexp.MustCompile(`(?m)^(Package|Version): (.*)$`)

// packages reads the names and versions of what is installed.
func packages(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status"))
	if err != nil {
		return nil, err
	}
	var all []string
	for stanza := range bytes.SplitSeq(text, []byte("\n\n")) {
		fields := map[string]string{}
		for _, m := range statusField.FindAllSubmatch(stanza, -1) {
			fields[string(m[1])] = string(m[2])
		}
		if fields["Package"] != "" {
			all = append(all, fields["Package"]+"="+fields["Version"])
		}
	}
	slices.Sort(all)
	return all, nil
}
