package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/sandbox/local"
)

// The values of build_template.
const (
	buildAuto  = "auto"
	buildNever = "never"
)

// buildSpace is the free space, above the floor of the disk guard, that building the base template
// needs: the packages, the template and what the next containers write.
const buildSpace = 4 << 30

// A templateBuild builds the base template in the background of a server that has no template.
type templateBuild struct {
	began atomic.Pointer[time.Time] // nil while no build runs
	wait  sync.WaitGroup
}

// buildable reports whether a server should build the default template: it is the base template,
// there is no other, and this machine can build it.
func (c *Config) buildable(images *image.Store, state string) bool {
	if c.BuildTemplate != buildAuto || c.Driver == local.Name || c.Template != image.Base().Name || !canBuild() {
		return false
	}
	if _, err := c.defaultTemplate(images); !errors.Is(err, image.ErrNotFound) {
		return false
	}
	all, err := images.List()
	if err != nil || len(all) > 0 {
		return false
	}
	var st unix.Statfs_t
	if err := unix.Statfs(existing(state), &st); err != nil {
		return false
	}
	free := int64(st.Bavail) * st.Bsize
	return free > diskspace.Low(int64(st.Blocks)*st.Bsize)+buildSpace
}

// start builds the base template until ctx ends, and logs the result. next is the command that builds
// it by hand.
func (b *templateBuild) start(ctx context.Context, images *image.Store, next string, log *slog.Logger) {
	began := time.Now()
	b.began.Store(&began)
	b.wait.Go(func() {
		defer b.began.Store(nil)
		built, err := images.Build(ctx, image.Base(), nil)
		took := time.Since(began).Round(time.Second)
		switch {
		case err == nil:
			log.Info("built the base template; containers can start", "digest", built.Digest, "took", took)
		case ctx.Err() != nil:
			log.Info("stopped building the base template; the next start begins again")
		default:
			log.Error("failed to build the base template; containers cannot start", "next", next, "err", err)
		}
	})
}

// unavailable returns the error for a request that needs the template which is being built, or nil if
// no build runs.
func (b *templateBuild) unavailable() error {
	began := b.began.Load()
	if began == nil {
		return nil
	}
	return &berth.Error{Code: berth.CodeUnavailable, Message: fmt.Sprintf("This server is still building the template that containers start from, which takes some minutes (%d s so far). Try again later.", int(time.Since(*began).Seconds()))}
}

// startBuild starts building the base template if it is missing and can be built. It reports whether
// it has.
func (s *Server) startBuild(ctx context.Context, o Options) bool {
	t := s.templates
	if !o.Config.buildable(t.images, o.State) {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	t.build.start(ctx, t.images, "berth "+strings.Join(inState(o.State, "image", "build"), " "), s.log)
	s.later(func(context.Context) error {
		cancel()
		t.build.wait.Wait()
		return nil
	})
	return true
}
