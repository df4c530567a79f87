package container

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/berth-run/berth"
)

// Commands change files in bursts. What is told of one is told when it has paused,
// or when it has lasted long enough.
const (
	watchPause = 100 * time.Millisecond
	watchBurst = time.Second
)

// Watch yields what happens to the files in a container's working directory and
// below, beginning with those that are there: each as it is at the end of a burst of
// changes, so that one which comes and goes within it is not told. An error, such as
// the container's end, is the last thing that it yields. Being watched is no use of a
// container, which expires all the same.
func (fl *Files) Watch(ctx context.Context, p berth.ProjectID, id berth.ContainerID) iter.Seq2[*berth.ContainerFileEvent, error] {
	return func(yield func(*berth.ContainerFileEvent, error) bool) {
		s, release, err := fl.leases.hold(ctx, p, id)
		if err != nil {
			yield(nil, err)
			return
		}
		release()
		ctx, stop := s.inReach(ctx)
		defer stop()
		w := watched{of: fl, sandbox: s}
		if err := w.follow(ctx, yield); err != nil {
			yield(nil, fl.leases.explain(ctx, s, err))
		}
	}
}

// watched is what a watcher has told of a container's files.
type watched struct {
	of      *Files
	sandbox *instance
	files   map[string]*berth.ContainerFile
	times   map[string]time.Time
}

// follow tells until the reader has enough, which is no error.
func (w *watched) follow(ctx context.Context, yield func(*berth.ContainerFileEvent, error) bool) error {
	dir, err := w.sandbox.dir(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, failed := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for err := range w.sandbox.client.Watch(ctx, dir) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case changed <- struct{}{}:
			default: // it is known already
			}
		}
	}()
	for {
		select {
		case err := <-failed:
			return err
		case <-changed:
		}
		if w.files != nil {
			settle(ctx, changed)
		}
		events, err := w.look(ctx)
		if err != nil {
			return err
		}
		for _, ev := range events {
			if !yield(ev, nil) {
				return nil
			}
		}
	}
}

// settle waits for a pause in what changes.
func settle(ctx context.Context, changed <-chan struct{}) {
	end := time.After(watchBurst)
	for {
		select {
		case <-changed:
		case <-time.After(watchPause):
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

// look returns what is different from what was told.
func (w *watched) look(ctx context.Context) ([]*berth.ContainerFileEvent, error) {
	s := w.sandbox
	if err := s.files.lock.acquire(ctx); err != nil {
		return nil, err
	}
	files, times, err := w.of.scanTimes(ctx, s)
	s.files.lock.release()
	if err != nil {
		return nil, err
	}
	var events []*berth.ContainerFileEvent
	now := make(map[string]*berth.ContainerFile, len(files))
	for _, f := range files {
		now[f.Path] = f
		before := w.files[f.Path]
		switch {
		case before == nil || before.ID != f.ID:
			events = append(events, &berth.ContainerFileEvent{Type: berth.ContainerFileCreated, File: f})
		case before.Bytes != f.Bytes || !w.times[f.Path].Equal(times[f.Path]):
			events = append(events, &berth.ContainerFileEvent{Type: berth.ContainerFileUpdated, File: f})
		}
	}
	var gone []*berth.ContainerFileEvent
	for path, f := range w.files {
		if now[path] == nil || now[path].ID != f.ID {
			gone = append(gone, &berth.ContainerFileEvent{Type: berth.ContainerFileDeleted, File: f})
		}
	}
	slices.SortFunc(gone, func(a, b *berth.ContainerFileEvent) int { return cmp.Compare(a.File.Path, b.File.Path) })
	w.files, w.times = now, times
	return append(gone, events...), nil
}
