package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Kinds of objects of a container's log.
const (
	kindLog     = store.KindContainerLog     // a berth.ContainerLog of a command that has ended
	kindRunning = store.KindContainerOpenLog // the list of running commands
)

// Bounds of a container's log.
const (
	maxLogs    = 1000 // entries; the oldest are deleted
	logSlack   = 100  // entries deleted at a time
	maxRunning = 256  // running commands recorded in case of a crash
	logTimeout = 10 * time.Second
)

// A commandLog is the state of a container's log.
//
// A command is saved twice: in the list of running commands when it starts, and as an entry of
// its own when it ends. After a crash, the commands in the list without an entry are those that
// were running.
type commandLog struct {
	lock    slots // one slot: serializes writes
	next    int64 // next sequence number, if loaded
	loaded  bool
	created bool // the list of running commands is in the store

	mu      sync.Mutex
	running map[berth.LogID]berth.ContainerLog
	last    causeSpan     // the command that was started last
	changed chan struct{} // closed and replaced when an entry was saved or a command ended
}

func newCommandLog() commandLog {
	return commandLog{lock: newSlots(1), running: map[berth.LogID]berth.ContainerLog{}, changed: make(chan struct{})}
}

// Logs are the logs of the commands that ran in containers.
type Logs struct {
	opts  *Options
	index *index
}

// A command is a running command that is logged. It is not safe for concurrent use.
type command struct {
	logs    *Logs
	s       *instance
	entry   berth.ContainerLog
	started time.Time
	out     [2]excerpt // stdout and stderr
	span    trace.Span // of the call that runs it
	ended   bool
}

// start saves the start of commands and returns them.
func (l *Logs) start(ctx context.Context, s *instance, entries []berth.ContainerLog) []*command {
	commands := l.register(ctx, s, entries)
	l.saveStart(ctx, s)
	return commands
}

// register adds commands to the list of running ones. ctx has the span of the call.
func (l *Logs) register(ctx context.Context, s *instance, entries []berth.ContainerLog) []*command {
	commands := make([]*command, len(entries))
	s.log.mu.Lock()
	for i, e := range entries {
		if before, ok := s.log.running[e.ID]; ok { // of a resumed call
			e.CreatedAt, e.StartedAtMS = before.CreatedAt, before.StartedAtMS
		}
		e.Object, e.ContainerID = "container.log", s.id
		e.Command = shorten(e.Command)
		began := l.opts.clock.Now()
		if e.CreatedAt == 0 {
			e.CreatedAt, e.StartedAtMS = began.Unix(), began.UnixMilli()
		} else if began = time.Unix(e.CreatedAt, 0); e.StartedAtMS != 0 {
			began = time.UnixMilli(e.StartedAtMS)
		}
		s.log.running[e.ID] = e
		commands[i] = &command{logs: l, s: s, entry: e, started: began, span: traceCommand(ctx, s, e.ID)}
	}
	s.log.mu.Unlock()
	return commands
}

// saveStart saves the list of running commands. It only logs failures, because the commands run
// in any case.
func (l *Logs) saveStart(ctx context.Context, s *instance) {
	if err := l.saveRunning(ctx, s); err != nil && !errors.Is(err, store.ErrNotFound) {
		l.opts.Log.Error("failed to save command start", "container", s.id, "err", err)
	}
}

// saveRunning saves the list of running commands.
func (l *Logs) saveRunning(ctx context.Context, s *instance) error {
	ctx, cancel := l.opts.clock.WithTimeout(context.WithoutCancel(ctx), logTimeout)
	defer cancel()
	if err := s.log.lock.acquire(ctx); err != nil {
		return err
	}
	defer s.log.lock.release()
	s.log.mu.Lock()
	list := make([]berth.ContainerLog, 0, len(s.log.running))
	for _, e := range s.log.running {
		if list = append(list, e); len(list) == maxRunning {
			break
		}
	}
	s.log.mu.Unlock()
	body, err := json.Marshal(list)
	if err != nil {
		return err
	}
	key := runningKey(s.id)
	if !s.log.created {
		err := l.opts.Store.CreateObjects(ctx, s.project, &store.Object{ObjectKey: key,
			CreatedAt: l.opts.clock.Now().Unix(), Body: body})
		if s.log.created = err == nil || errors.Is(err, store.ErrExists); !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	_, err = l.opts.Store.UpdateObject(ctx, s.project, key, func(o *store.Object) error {
		o.Body = body
		return nil
	})
	return err
}

func runningKey(id berth.ContainerID) store.ObjectKey {
	return store.ObjectKey{Kind: kindRunning, Parent: string(id), ID: "open"}
}

// write records output of the command, after skipped lost bytes.
func (c *command) write(stream int, data []byte, skipped int64) { c.out[stream].write(data, skipped) }

// end saves the outcome of the command and then wakes followers.
func (c *command) end(outcome berth.ShellOutcome) {
	if !c.ended {
		c.close(outcome)
		c.save()
	}
}

// close sets the outcome of the command.
func (c *command) close(outcome berth.ShellOutcome) {
	c.ended = true
	c.entry.Outcome = outcome
	took := max(0, c.logs.opts.clock.Now().Sub(c.started))
	c.entry.DurationMS = took.Milliseconds()
	endCommand(c.span, outcome)
	c.logs.opts.Observer.Ran(c.entry.Source, outcomeLabel(outcome), took)
	c.entry.Stdout, c.entry.Stderr = c.out[0].text(), c.out[1].text()
}

// save saves a closed command.
func (c *command) save() {
	ctx, cancel := c.logs.opts.clock.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	if err := c.logs.save(ctx, c.s, c.entry); err != nil {
		c.logs.opts.Log.Error("failed to save command log", "container", c.s.id, "log", c.entry.ID, "err", err)
	}
}

// save saves an entry. It ignores an entry that is already saved and one of a deleted
// container.
func (l *Logs) save(ctx context.Context, s *instance, e berth.ContainerLog) error {
	err := s.log.lock.acquire(ctx)
	if err == nil {
		err = l.append(ctx, s, e)
		s.log.lock.release()
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	delete(s.log.running, e.ID)
	close(s.log.changed)
	s.log.changed = make(chan struct{})
	return err
}

// append saves an entry under the next number. The caller has acquired s.log.lock.
func (l *Logs) append(ctx context.Context, s *instance, e berth.ContainerLog) error {
	if !s.log.loaded {
		last, _, err := l.page(ctx, s.project, s.id, store.Page{Limit: 1})
		if err != nil {
			return err
		}
		if len(last) > 0 {
			s.log.next = last[0].SequenceNumber + 1
		}
		s.log.loaded = true
	}
	e.SequenceNumber = s.log.next
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	key := store.ObjectKey{Kind: kindLog, Parent: string(s.id), ID: string(e.ID)}
	err = l.opts.Store.CreateObjects(ctx, s.project, &store.Object{ObjectKey: key, CreatedAt: e.CreatedAt, Body: body})
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		s.log.loaded = false // it may have been saved nevertheless
		return err
	}
	s.log.next++
	if s.log.next > maxLogs && s.log.next%logSlack == 0 {
		return l.trim(ctx, s)
	}
	return nil
}

// trim deletes the oldest entries beyond maxLogs.
func (l *Logs) trim(ctx context.Context, s *instance) error {
	oldest, _, err := l.page(ctx, s.project, s.id, store.Page{Limit: 2 * logSlack, Ascending: true})
	for _, e := range oldest {
		if e.SequenceNumber >= s.log.next-maxLogs {
			break
		}
		key := store.ObjectKey{Kind: kindLog, Parent: string(s.id), ID: string(e.ID)}
		switch one := l.opts.Store.DeleteObject(ctx, s.project, key); {
		case berth.ErrorCode(one) == berth.CodeConflict: // a hold retains the whole log
			return err
		default:
			err = errors.Join(err, ignoreNotFound(one))
		}
	}
	return err
}

// recover loads the commands that ran when a former process ended. It logs commands that cannot
// be resumed with an unknown outcome. Shell calls of a live sandbox are resumed by their
// responses.
func (l *Logs) recover(ctx context.Context, s *instance, lives bool) error {
	o, err := l.opts.Store.GetObject(ctx, s.project, runningKey(s.id))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var entries []berth.ContainerLog
	if err := json.Unmarshal(o.Body, &entries); err != nil {
		return fmt.Errorf("decode running commands: %w", err)
	}
	slices.SortFunc(entries, func(a, b berth.ContainerLog) int { return int(a.CreatedAt - b.CreatedAt) })
	for _, e := range entries {
		key := store.ObjectKey{Kind: kindLog, Parent: string(s.id), ID: string(e.ID)}
		if _, err := l.opts.Store.GetObject(ctx, s.project, key); err == nil {
			continue
		}
		if lives && e.Source == berth.LogShell {
			s.log.mu.Lock()
			s.log.running[e.ID] = e
			s.log.mu.Unlock()
			continue
		}
		e.Outcome = berth.ShellOutcome{Type: berth.OutcomeUnknown}
		if err := l.save(ctx, s, e); err != nil {
			return err
		}
	}
	return nil
}

// List returns one page of a container's log and whether there is more.
func (l *Logs) List(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	page store.Page) ([]*berth.ContainerLog, bool, error) {
	if err := l.exists(ctx, p, id); err != nil {
		return nil, false, err
	}
	return l.page(ctx, p, id, page)
}

func (l *Logs) exists(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	_, err := l.opts.container(ctx, p, id)
	return err
}

func (l *Logs) page(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	page store.Page) ([]*berth.ContainerLog, bool, error) {
	objects, more, err := l.opts.Store.ListObjects(ctx, p, kindLog, string(id), page)
	if err != nil {
		return nil, false, err
	}
	entries := make([]*berth.ContainerLog, len(objects))
	for i, o := range objects {
		entries[i] = &berth.ContainerLog{}
		if err := json.Unmarshal(o.Body, entries[i]); err != nil {
			return nil, false, fmt.Errorf("decode entry: %w", err)
		}
	}
	return entries, more, nil
}

// Follow yields the entries of a container's log with sequence numbers above after, and
// then new ones, until the container or ctx ends or the service closes. An error is the
// last element.
func (l *Logs) Follow(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	after int64) iter.Seq2[*berth.ContainerLog, error] {
	return func(yield func(*berth.ContainerLog, error) bool) {
		if err := l.exists(ctx, p, id); err != nil {
			yield(nil, err)
			return
		}
		last := ""
		s := l.index.lookup(p, id)
		var ended <-chan struct{}
		var end <-chan time.Time
		if s != nil {
			ended = s.life.Done()
		}
		for {
			changed, over := s.logState()
			for more := true; more; {
				var entries []*berth.ContainerLog
				var err error
				entries, more, err = l.page(ctx, p, id, store.Page{Limit: 100, Ascending: true, After: last})
				if errors.Is(err, store.ErrNotFound) && last != "" {
					last, more = "", true // the last entry has been deleted
					continue
				}
				if err != nil {
					yield(nil, err)
					return
				}
				for _, e := range entries {
					last = string(e.ID)
					if e.SequenceNumber <= after {
						continue
					}
					after = e.SequenceNumber
					if !yield(e, nil) {
						return
					}
				}
			}
			if over {
				return
			}
			select {
			case <-changed:
			case <-ended:
				ended = nil // the running commands are saved in a moment
				end = l.opts.clock.After(logTimeout)
			case <-end:
				return
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// logState returns a channel that is closed when the log changes, and whether the log is final:
// the sandbox has ended and no command is pending.
func (s *instance) logState() (changed <-chan struct{}, over bool) {
	if s == nil {
		return nil, true
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.changed, s.life.Err() != nil && len(s.log.running) == 0
}
