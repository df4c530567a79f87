package build

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

const (
	maxLogs       = 5000            // lines of one build
	maxLogLine    = 4096            // bytes
	beat          = 5 * time.Second // between saves of a build that runs
	finishTimeout = time.Minute     // of saving how a build ended
)

// builds are the builds that run or wait on this server.
type builds struct {
	queue *queue
	most  int // of one project that run or wait

	mu    sync.Mutex
	all   map[string]*running // by project and id
	count map[berth.ProjectID]int
	wg    sync.WaitGroup
}

// A running is a build in progress.
type running struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when all of it has ended

	mu    sync.Mutex
	build Build
}

func newBuilds(limits Limits) *builds {
	return &builds{queue: newQueue(limits.AtOnce), most: limits.Started, all: map[string]*running{},
		count: map[berth.ProjectID]int{}}
}

// add adds a build until end is called.
func (b *builds) add(p berth.ProjectID, id string, run *running) (end func(), err error) {
	key := string(p) + "/" + id
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[key] != nil {
		return nil, startedAlready(id)
	}
	if b.count[p] >= b.most {
		return nil, berth.Errorf(berth.CodeRateLimited,
			"%d builds of this project run or wait already. Wait until one has ended, or delete its template.",
			b.most)
	}
	b.all[key] = run
	b.count[p]++
	b.wg.Add(1)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, key)
		if b.count[p]--; b.count[p] == 0 {
			delete(b.count, p)
		}
		close(run.done)
		b.wg.Done()
	}, nil
}

func startedAlready(id string) error {
	return berth.Errorf(berth.CodeConflict, "Build '%s' was started already.", id)
}

// find returns a build that runs or waits here, or nil.
func (b *builds) find(p berth.ProjectID, id string) *running {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[string(p)+"/"+id]
}

// get returns the present state of a build that runs or waits here, or nil.
func (b *builds) get(p berth.ProjectID, id string) *Build {
	run := b.find(p, id)
	if run == nil {
		return nil
	}
	return run.state()
}

// end cancels a build that runs or waits here, and returns when it has ended, with its container.
func (b *builds) end(ctx context.Context, p berth.ProjectID, id string, cause error) error {
	run := b.find(p, id)
	if run == nil {
		return nil
	}
	run.cancel(cause)
	select {
	case <-run.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cancel build: %w", ctx.Err())
	}
}

// Causes of the end of a build.
var (
	errBuildTime    = errors.New("the build took too long")
	errBuildDeleted = errors.New("the template of the build was deleted")
	errBuildEnded   = errors.New("another server has ended the build")
	errServerStops  = errors.New("the server stops")
)

// state returns a copy of a build.
func (r *running) state() *Build {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.build
	b.Logs = slices.Clip(b.Logs)
	return &b
}

// change changes a build.
func (r *running) change(f func(*Build)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.build)
}

// log adds lines to the log of a build.
func (r *running) log(now time.Time, level, step, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(text) {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "�")
		if len(line) > maxLogLine {
			line = strings.ToValidUTF8(line[:maxLogLine], "") + "…"
		}
		switch n := len(r.build.Logs); {
		case n == maxLogs:
			return
		case n == maxLogs-1:
			line, level = "The log is too long; later lines are left out.", "warn"
		}
		r.build.Logs = append(r.build.Logs, LogEntry{rfc3339(now.UnixMilli()), level, line, step})
	}
}
