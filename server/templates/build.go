package templates

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// buildSpace is the free space, above the floor of the disk guard, that building the base template
// needs: the packages, the template and what the next containers write.
const buildSpace = 4 << 30

// BuildRetry is when clients are to ask again for a template that is being built.
const BuildRetry = 30 * time.Second

// A Build builds the base template in the background of a server that has no template.
type Build struct {
	status atomic.Pointer[BuildStatus] // nil before a build, and after one that succeeded
	Wait   sync.WaitGroup
}

// A BuildStatus is the state of a build. It is also in a file of the state directory, for other
// processes.
type BuildStatus struct {
	Since  int64  `json:"since"`            // Unix seconds
	Failed string `json:"failed,omitempty"` // why the build failed; empty while it runs
}

// String describes the state in a sentence.
func (s *BuildStatus) String() string {
	if s.Failed != "" {
		return "The base template could not be built: " + s.Failed + "."
	}
	return "The base template is being built (since " + time.Unix(s.Since, 0).UTC().Format("15:04:05 UTC") +
		"), which takes some minutes."
}

func buildStatusFile(state string) string { return filepath.Join(state, "template-build.json") }

// Set stores the state of a build, or nil. Without the file, other processes do not know the state.
func (b *Build) Set(state string, s *BuildStatus) {
	b.status.Store(s)
	if s == nil {
		_ = os.Remove(buildStatusFile(state))
		return
	}
	if text, err := json.Marshal(s); err == nil {
		_ = os.WriteFile(buildStatusFile(state), text, 0o600)
	}
}

// BuildStatusOf returns the state of the build of a running server of a state directory, or nil.
func BuildStatusOf(dir string) *BuildStatus {
	if !state.IsServed(dir) {
		return nil
	}
	text, err := statefile.ReadFile(buildStatusFile(dir))
	if err != nil {
		return nil
	}
	s := &BuildStatus{}
	if err := json.Unmarshal(text, s); err != nil || s.Since == 0 {
		return nil
	}
	return s
}

// Reason returns the last line of an error, which is short enough for a message and does not name
// the state directory.
func Reason(err error, state string) string {
	const most = 200
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(err.Error(), state, "…")), "\n")
	text := []rune(strings.TrimRight(lines[len(lines)-1], ". "))
	if len(text) > most {
		text = append(text[:most], '…')
	}
	return string(text)
}

// Buildable reports whether a server should build the default template: it is the base template,
// there is no other, and this machine can build it.
func Buildable(c *config.Config, images *image.Store, dir string) bool {
	if c.BuildTemplate != config.BuildAuto || c.Driver == config.UnsafeLocal || c.Template != image.Base().Name ||
		!CanBuild() {
		return false
	}
	if _, err := Default(c, images); !errors.Is(err, image.ErrNotFound) {
		return false
	}
	all, err := images.List()
	if err != nil || len(all) > 0 {
		return false
	}
	var st unix.Statfs_t
	if err := unix.Statfs(state.Existing(dir), &st); err != nil {
		return false
	}
	free := int64(st.Bavail) * st.Bsize
	return free > diskspace.Low(int64(st.Blocks)*st.Bsize)+buildSpace
}

// Start builds the base template until ctx ends, and logs the result. next is the command that builds
// it by hand.
func (b *Build) Start(ctx context.Context, images *image.Store, state, next string, log *slog.Logger) {
	began := time.Now()
	b.Set(state, &BuildStatus{Since: began.Unix()})
	b.Wait.Go(func() {
		built, err := images.Build(ctx, image.Base(), nil)
		took := time.Since(began).Round(time.Second)
		switch {
		case err == nil:
			b.Set(state, nil)
			log.Info("built the base template; containers can start", "digest", built.Digest, "took", took)
		case ctx.Err() != nil:
			b.Set(state, nil)
			log.Info("stopped building the base template; the next start begins again")
		default:
			b.Set(state, &BuildStatus{Since: began.Unix(), Failed: Reason(err, state)})
			log.Error("failed to build the base template; containers cannot start", "next", next, "err", err)
		}
	})
}

// Unavailable returns the error for a request that needs the template which is being built or could
// not be built, or nil if there was no build.
func (b *Build) Unavailable() error {
	s := b.status.Load()
	switch {
	case s == nil:
		return nil
	case s.Failed != "":
		return &berth.Error{Code: berth.CodeUnavailable, Message: s.String() +
			" The operator of this server can build one with berth image build."}
	}
	return &berth.Error{Code: berth.CodeUnavailable, RetryAfter: BuildRetry, Message: s.String() +
		" Containers start when it is ready; try again later."}
}
