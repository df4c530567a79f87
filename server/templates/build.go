package templates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
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
	Loaded bool   `json:"loaded,omitempty"` // the template comes from an archive
	Failed string `json:"failed,omitempty"` // why the build failed; empty while it runs
}

// String describes the state in a sentence.
func (s *BuildStatus) String() string {
	since := time.Unix(s.Since, 0).UTC().Format("15:04:05 UTC")
	switch {
	case s.Failed != "" && s.Loaded:
		return "The template could not be loaded from its archive: " + s.Failed + "."
	case s.Failed != "":
		return "The base template could not be built: " + s.Failed + "."
	case s.Loaded:
		return "The template is being loaded from its archive (since " + since + "), which takes less than a minute."
	}
	return "The base template is being built (since " + since + "), which takes some minutes."
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

// A Plan is how a server gets its default template by itself.
type Plan struct {
	Name    string // of the template
	Archive string // file to load it from; empty: build it
}

// PlanOf returns the Plan of a server that has no template, if this machine can carry it out: a missing default
// template is
// loaded if there is an archive of it, and built if it is the base template.
func PlanOf(c *config.Config, images *image.Store, dir string) (p Plan, ok bool) {
	if c.BuildTemplate != config.BuildAuto || c.Driver == config.UnsafeLocal {
		return p, false
	}
	if _, err := Default(c, images); !errors.Is(err, image.ErrNotFound) {
		return p, false
	}
	all, err := images.List()
	if err != nil || len(all) > 0 {
		return p, false
	}
	var st unix.Statfs_t
	if err := unix.Statfs(state.Existing(dir), &st); err != nil {
		return p, false
	}
	room := int64(st.Bavail)*st.Bsize - diskspace.Low(int64(st.Blocks)*st.Bsize)
	p.Name = c.Template
	if file, size := archiveOf(c); file != "" && room > unpacked*size {
		p.Archive = file
		return p, true
	}
	return p, c.Template == image.Base().Name && CanBuild() && room > buildSpace
}

// unpacked is how many times its size an archive of a template needs on the disk: its layers and their files.
const unpacked = 5

// archiveOf returns the archive of the default template, or "".
func archiveOf(c *config.Config) (file string, size int64) {
	if c.TemplateArchives == "" || c.Template == "" || c.Template != filepath.Base(c.Template) {
		return "", 0
	}
	file = filepath.Join(c.TemplateArchives, c.Template+"_"+runtime.GOARCH+".tar")
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return "", 0
	}
	return file, info.Size()
}

// carryOut makes the template.
func (p Plan) carryOut(ctx context.Context, images *image.Store, log *slog.Logger) (image.Template, error) {
	if p.Archive == "" {
		return images.Build(ctx, image.Base(), logProgress(log))
	}
	f, err := os.Open(p.Archive)
	if err != nil {
		return image.Template{}, err
	}
	defer f.Close()
	return images.Load(ctx, f, image.LoadOptions{Name: p.Name})
}

// logEvery is the time of a build between two entries of the log.
const logEvery = 10 * time.Second

// logProgress returns a function that logs how far a build is. A build calls it at every change of phase.
func logProgress(log *slog.Logger) func(image.Progress) {
	var last time.Duration // of the build
	return func(p image.Progress) {
		if p.Elapsed-last < logEvery {
			return
		}
		last = p.Elapsed
		args := []any{"phase", p.Phase, "elapsed", p.Elapsed.Round(time.Second)}
		if p.Total > 0 {
			args = append(args, "packages", fmt.Sprintf("%d of %d", p.Done, p.Total))
		}
		log.Info("building the base template", args...)
	}
}

// Start carries out a Plan until ctx ends, and logs the result. next is the command that builds the template
// by hand.
func (b *Build) Start(ctx context.Context, p Plan, images *image.Store, state, next string, log *slog.Logger) {
	began := time.Now()
	loaded := p.Archive != ""
	b.Set(state, &BuildStatus{Since: began.Unix(), Loaded: loaded})
	b.Wait.Go(func() {
		made, err := p.carryOut(ctx, images, log)
		took := time.Since(began).Round(time.Second)
		switch {
		case err == nil && loaded:
			b.Set(state, nil)
			log.Info("loaded the template; containers can start", "template", p.Name, "digest", made.Digest,
				"took", took)
		case err == nil:
			b.Set(state, nil)
			log.Info("built the base template; containers can start", "digest", made.Digest, "took", took)
		case ctx.Err() != nil:
			b.Set(state, nil)
			log.Info("stopped building the base template; the next start begins again")
		default:
			b.Set(state, &BuildStatus{Since: began.Unix(), Loaded: loaded, Failed: Reason(err, state)})
			log.Error("failed to make the default template; containers cannot start", "next", next, "err", err)
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
