package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// builders are the programs that can build an image from a Dockerfile, in order of
// preference. They take the same arguments.
var builders = []string{"docker", "podman"}

// buildGrace is how long an interrupted builder has before it is killed.
const buildGrace = 10 * time.Second

// Dockerfile builds an image from the Dockerfile in a directory with this machine's Docker or
// Podman, and creates a template from it. It passes args to the build command and writes the
// command's output to out. The image stays in the builder's cache, untagged.
func (l *Store) Dockerfile(ctx context.Context, as, dir string, args []string, out io.Writer,
	opts AddOptions) (Template, error) {
	if !namePattern.MatchString(as) {
		return Template{}, fmt.Errorf("the name %q must match %s", as, namePattern)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return Template{}, errors.Join(fmt.Errorf("%s is not a directory", dir), err)
	}
	tool, err := findBuilder()
	if err != nil {
		return Template{}, err
	}
	temp, err := os.MkdirTemp("", "berth-build-*")
	if err != nil {
		return Template{}, err
	}
	defer os.RemoveAll(temp)
	idFile := filepath.Join(temp, "id")
	cmd := builder(ctx, tool, append(append([]string{"build", "--iidfile", idFile}, args...), dir)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return Template{}, interrupted(ctx, fmt.Errorf("%s build: %w", filepath.Base(tool), err))
	}
	id, err := os.ReadFile(idFile)
	if err != nil {
		return Template{}, err
	}
	image := strings.TrimSpace(string(id))
	if !digestPattern.MatchString(image) {
		image = "sha256:" + image // podman omits the prefix
	}
	return l.loadBuilt(ctx, tool, image, LoadOptions{Name: as, AddOptions: opts})
}

// loadBuilt creates a template from an image in the builder's cache.
func (l *Store) loadBuilt(ctx context.Context, tool, id string, opts LoadOptions) (Template, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stderr bytes.Buffer
	cmd := builder(ctx, tool, "save", id)
	cmd.Stderr = &stderr
	archive, err := cmd.StdoutPipe()
	if err != nil {
		return Template{}, err
	}
	if err := cmd.Start(); err != nil {
		return Template{}, err
	}
	t, err := l.Load(ctx, archive, opts)
	if err == nil {
		_, err = io.Copy(io.Discard, archive)
	} else {
		cancel()
	}
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = werr
	}
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w\n%s save: %s", err, filepath.Base(tool), strings.TrimSpace(stderr.String()))
	}
	return t, err
}

// findBuilder returns the path of the first builder that is installed.
func findBuilder() (string, error) {
	for _, name := range builders {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("building from a Dockerfile needs Docker or Podman: apt-get install docker.io, or podman")
}

func builder(ctx context.Context, tool string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = buildGrace
	return cmd
}

func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
