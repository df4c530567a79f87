package container

import (
	"context"
	"errors"
	"slices"
	"time"
)

// restartSnapshotLife is the least time until the snapshot of a repeated start expires.
const restartSnapshotLife = time.Hour

// replan returns the plan that repeats an interrupted start.
func (st *starter) replan(ctx context.Context, s *instance, rec *startRecord) (*plan, error) {
	pl := &plan{requestedAt: st.opts.clock.Now(), body: &s.body, requestEnv: rec.Env, files: rec.Files,
		skills: rec.Skills, restarted: true}
	if rec.Memory && !s.body.Berth.Starting {
		pl.networkOnly = true
		return pl, nil
	}
	if rec.Fork {
		return pl, stepError{"the server was interrupted while it was forked", errStopping}
	}
	t, err := st.opts.Template(s.body.Berth.Template)
	if err != nil {
		return pl, stepError{"its template is gone", err}
	}
	pl.template, pl.env = t.Template, slices.Concat(t.Env, rec.Env)
	if rec.Snapshot == "" {
		return pl, nil
	}
	if st.opts.Snapshots == nil {
		return pl, stepError{"its snapshot could not be read", errNoSnapshots}
	}
	// The snapshot may have expired while no server ran.
	if err := st.opts.Snapshots.Extend(ctx, s.project, rec.Snapshot,
		st.opts.clock.Now().Add(restartSnapshotLife)); err != nil {
		return pl, stepError{"its snapshot could not be read", err}
	}
	if pl.from, err = st.snapshots.get(ctx, s.project, rec.Snapshot); err != nil {
		return pl, stepError{"its snapshot could not be read", err}
	}
	return pl, nil
}

// startAgain repeats an interrupted start in the background. If failed is not nil, it ends the
// container with that error instead.
func (st *starter) startAgain(ctx context.Context, s *instance, rec *startRecord, failed error) error {
	s.requestID = rec.RequestID
	pl, err := st.replan(ctx, s, rec)
	if err = errors.Join(failed, err); err != nil {
		st.fail(s, err)
		return nil
	}
	st.opts.Log.Info("repeat container start", "container", s.id, "project", s.project, "adopted", pl.networkOnly)
	if !st.work.spawn(func() { st.launch(s, pl) }) {
		return errStopping
	}
	return nil
}

// fail ends a container that cannot be started.
func (st *starter) fail(s *instance, err error) {
	st.deaths.end(s, reasonHost, startError(s.id, err), err, nil)
	close(s.started)
}
