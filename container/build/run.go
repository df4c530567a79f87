package build

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// Start starts a build that waits for it. Errors are for the client.
func (d *Service) Start(ctx context.Context, c berth.Caller, b *Build, req *Request) error {
	if _, own := ownImage(req.FromImage); !own && req.FromImage != "" && d.Images != nil {
		if err := d.Images.Check(req.FromImage); err != nil {
			return err
		}
	}
	if b.Status != StatusWaiting {
		return startedAlready(b.ID)
	}
	life, cancel := context.WithCancelCause(d.life)
	run := &running{build: *b, cancel: cancel, done: make(chan struct{})}
	run.build.Status, run.build.Server, run.build.BeatAt = StatusBuilding, d.Server, d.Clock.Now().UnixMilli()
	end, err := d.builds.add(c.Project, b.ID, run)
	if err != nil {
		cancel(nil)
		return err
	}
	if err := d.saveStarted(ctx, c.Project, run.state()); err != nil {
		cancel(nil)
		end()
		switch {
		case errors.Is(err, errBuildDeleted):
			return NotFound(b.Template)
		case errors.Is(err, errBuildEnded):
			return startedAlready(b.ID)
		}
		return err
	}
	entered := d.builds.queue.enter(c.Project) // before other builds that are started after this one
	go func() {
		defer end()
		defer cancel(nil)
		d.runBuild(life, c, run, req, entered)
	}()
	return nil
}

// runBuild builds a template until ctx ends, and saves how that ended.
func (d *Service) runBuild(ctx context.Context, c berth.Caller, run *running, req *Request, entered *waiter) {
	until, stop := context.WithCancel(ctx)
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		d.saveWhileBuilding(until, c.Project, run)
	}()
	w := &worker{service: d, caller: c, run: run, req: req, entered: entered}
	err := w.build(ctx)
	stop()
	<-saved
	now := d.Clock.Now()
	var why *Reason
	if err != nil {
		message := w.explain(err)
		run.log(now, "error", w.step, message)
		why = &Reason{Message: message, Step: w.step,
			Logs: []LogEntry{{rfc3339(now.UnixMilli()), "error", message, w.step}}}
		d.Log.Info("template build failed", "template", run.build.Template, "build", run.build.ID, "project", c.Project,
			"err", err)
	} else {
		run.log(now, "info", "finalize", "Build finished")
	}
	ctx, cancel := d.Clock.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	if err == nil {
		err = d.finish(ctx, c.Project, run)
	}
	// Only the saved record shows the end: another server may have ended the build.
	ended := run.state()
	ended.EndedAt, ended.BeatAt = now.UnixMilli(), now.UnixMilli()
	if err != nil && why == nil {
		why = &Reason{Message: "The build could not be saved.", Logs: []LogEntry{}}
	}
	ended.Status, ended.Reason = StatusReady, why
	if why != nil {
		ended.Status = StatusError
	}
	saveErr := d.saveRunning(ctx, c.Project, ended)
	if saveErr != nil && !errors.Is(saveErr, errBuildDeleted) && !errors.Is(saveErr, errBuildEnded) {
		d.Log.Error("failed to save the end of a template build", "template", run.build.Template, "build", run.build.ID,
			"project", c.Project, "err", saveErr)
	}
}

// finish makes the tags of a build that is complete select it.
func (d *Service) finish(ctx context.Context, p berth.ProjectID, run *running) error {
	b := run.state()
	b.Status = StatusReady
	err := d.saveRunning(ctx, p, b) // before its tags: a tag selects only ready builds
	var t *Template
	if err == nil {
		t, err = d.Update(ctx, p, b.Template, func(t *Template) error {
			t.Tag(b.ID, b.Tags)
			t.UpdatedAt = d.Clock.Now().UnixMilli()
			return nil
		})
	}
	if err != nil {
		d.DropSnapshot(p, b.Snapshot)
		return err
	}
	if err := d.prune(ctx, p, t); err != nil {
		d.Log.Warn("failed to delete old builds of a template", "template", t.ID, "project", p, "err", err)
	}
	return nil
}

// saveWhileBuilding saves a build from time to time until ctx ends, so that other servers can show
// its log. If the build was deleted, or ended by another server, it cancels the build.
func (d *Service) saveWhileBuilding(ctx context.Context, p berth.ProjectID, run *running) {
	ticker := d.Clock.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		run.change(func(b *Build) { b.BeatAt = d.Clock.Now().UnixMilli() })
		err := d.saveRunning(ctx, p, run.state())
		switch {
		case errors.Is(err, errBuildDeleted), errors.Is(err, errBuildEnded):
			run.cancel(err)
			return
		case err != nil && ctx.Err() == nil:
			d.Log.Warn("failed to save a template build that runs; will retry", "build", run.build.ID, "project", p,
				"err", err)
		}
	}
}

// explain returns the message of an error for the client.
func (w *worker) explain(err error) string {
	switch {
	case errors.Is(err, errBuildTime):
		return fmt.Sprintf("The build took longer than %s, the limit of this server.",
			shortDuration(w.service.Limits.Time))
	case errors.Is(err, errBuildDeleted):
		return "The template was deleted while it was being built."
	case errors.Is(err, errServerStops), errors.Is(err, errBuildEnded):
		return interruptedMessage
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	if e, ok := errors.AsType[*stepError](err); ok {
		return e.Error()
	}
	w.service.Log.Error("failed to build a template", "template", w.run.build.Template, "build", w.run.build.ID,
		"project", w.caller.Project, "err", err)
	return "The build failed because of an internal error. The log of the server has more."
}

// shortDuration returns a duration without units that are zero, such as 30m.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
