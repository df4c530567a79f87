package container

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
)

// Commands change files in bursts. The events of a burst are sent when it pauses, or after
// watchBurst.
const (
	watchQuiet = 100 * time.Millisecond
	watchBurst = time.Second
)

// Watch yields the changes of the files in a container's working directory and below. It starts
// with the existing files as created. Each event has the file as it is at the end of a burst of
// changes, so a file that is created and deleted within one is not reported. An error, such as
// the container's end, is the last element. Watching does not prevent expiry.
func (fl *Files) Watch(ctx context.Context, p berth.ProjectID,
	id berth.ContainerID) iter.Seq2[*berth.ContainerFileEvent, error] {
	return func(yield func(*berth.ContainerFileEvent, error) bool) {
		s, release, err := fl.leases.hold(ctx, p, id)
		if err != nil {
			yield(nil, err)
			return
		}
		release()
		ctx, stop := s.withGuest(ctx)
		defer stop()
		w := watcher{source: fl, sandbox: s}
		if err := w.follow(ctx, yield); err != nil {
			yield(nil, fl.leases.explain(ctx, s, err))
		}
	}
}

// A watcher compares the files of a container with those that it reported last.
type watcher struct {
	source    *Files
	sandbox   *instance
	last      map[string]*berth.ContainerFile
	lastTimes map[string]time.Time
}

// follow yields events until the reader stops, which is not an error.
func (w *watcher) follow(ctx context.Context, yield func(*berth.ContainerFileEvent, error) bool) error {
	dir, err := w.sandbox.workingDir(ctx)
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
			default: // a scan is queued already
			}
		}
	}()
	for {
		select {
		case err := <-failed:
			return err
		case <-changed:
		}
		if w.last != nil {
			settle(ctx, w.sandbox.clock, changed)
		}
		events, err := w.diff(ctx)
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

// settle waits until the changes pause.
func settle(ctx context.Context, c clock.Clock, changed <-chan struct{}) {
	end := c.After(watchBurst)
	for {
		select {
		case <-changed:
		case <-c.After(watchQuiet):
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

// diff scans the files and returns the events since the last scan.
func (w *watcher) diff(ctx context.Context) ([]*berth.ContainerFileEvent, error) {
	s := w.sandbox
	if err := s.files.lock.acquire(ctx); err != nil {
		return nil, err
	}
	files, times, err := w.source.scanTimes(ctx, s)
	s.files.lock.release()
	if err != nil {
		return nil, err
	}
	var events []*berth.ContainerFileEvent
	now := make(map[string]*berth.ContainerFile, len(files))
	for _, f := range files {
		now[f.Path] = f
		before := w.last[f.Path]
		switch {
		case before == nil || before.ID != f.ID:
			events = append(events, &berth.ContainerFileEvent{Type: berth.ContainerFileCreated, File: f})
		case before.Bytes != f.Bytes || !w.lastTimes[f.Path].Equal(times[f.Path]):
			events = append(events, &berth.ContainerFileEvent{Type: berth.ContainerFileUpdated, File: f})
		}
	}
	var gone []*berth.ContainerFileEvent
	for path, f := range w.last {
		if now[path] == nil || now[path].ID != f.ID {
			gone = append(gone, &berth.ContainerFileEvent{Type: berth.ContainerFileDeleted, File: f})
		}
	}
	slices.SortFunc(gone, func(a, b *berth.ContainerFileEvent) int { return cmp.Compare(a.File.Path, b.File.Path) })
	w.last, w.lastTimes = now, times
	return append(gone, events...), nil
}
