package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/server/config"
)

// startBuild starts building the base template if it is missing and can be built. It reports whether
// it has.
func (s *Server) startBuild(ctx context.Context, o Options) bool {
	t := s.templates
	t.build.set(o.State, nil) // a former server may have left it
	if !buildable(o.Config, t.images, o.State) {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	t.build.start(ctx, t.images, o.State, "berth "+strings.Join(config.InState(o.State, "image", "build"), " "), s.log)
	s.later(func(context.Context) error {
		cancel()
		t.build.wait.Wait()
		return nil
	})
	return true
}

// startPruning removes unused templates in the background. stop waits for it, and releases
// all templates.
func startPruning(t *templates, referenced func(context.Context) (map[string]bool, error),
	containers *container.Service, log *slog.Logger) (stop func(context.Context) error) {
	worker := startWorker(pruneInterval, pruneInterval, func(ctx context.Context) {
		if err := t.sweep(ctx, referenced, containers.Templates(), time.Now(), log); err != nil && ctx.Err() == nil {
			log.Error("failed to prune templates", "err", err)
		}
	})
	return func(ctx context.Context) error {
		err := worker(ctx)
		t.Close()
		return err
	}
}
