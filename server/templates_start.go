package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/templates"
)

// startBuild starts making the default template if it is missing and can be made. It returns how, or nil.
func (s *Server) startBuild(ctx context.Context, o Options) *templates.Plan {
	t := s.templates
	t.Build.Set(o.State, nil) // a former server may have left it
	plan, ok := templates.PlanOf(o.Config, t.Images, o.State)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	t.Build.Start(ctx, plan, t.Images, o.State, "berth "+strings.Join(config.InState(o.State, "image", "build"), " "),
		s.log)
	s.later(func(context.Context) error {
		cancel()
		t.Build.Wait.Wait()
		return nil
	})
	return &plan
}

// startPruning removes unused templates in the background. stop waits for it, and releases
// all templates.
func startPruning(t *templates.Catalog, referenced func(context.Context) (map[string]bool, error),
	containers *container.Service, log *slog.Logger) (stop func(context.Context) error) {
	worker := startWorker(templates.PruneInterval, templates.PruneInterval, func(ctx context.Context) {
		if err := t.Sweep(ctx, referenced, containers.Templates(), time.Now(), log); err != nil && ctx.Err() == nil {
			log.Error("failed to prune templates", "err", err)
		}
	})
	return func(ctx context.Context) error {
		err := worker(ctx)
		t.Close()
		return err
	}
}
