package container

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// The kinds of object that a container's log is made of.
const (
	kindLog     = store.KindContainerLog     // a berth.ContainerLog that has ended
	kindRunning = store.KindContainerOpenLog // those that had not when the last one began
)

// Bounds of a container's log.
const (
	maxLogs    = 1000 // commands; the oldest go
	logSlack   = 100  // as many more, so that they go together
	maxRunning = 256  // commands of which a crash of the server leaves a trace
	logTime    = 10 * time.Second
)

// A commandLog is what a sandbox knows of its container's log.
//
// A command is saved twice: among those that run, when it begins, and as an entry of
// its own, when it ends. What ran when the server crashed is found among the first,
// and not among the second.
type commandLog struct {
	turn    slots // 1: writes come one at a time
	next    int64 // sequence number, if loaded
	loaded  bool
	created bool // the object of what runs is there

	mu      sync.Mutex
	running map[berth.LogID]berth.ContainerLog
	changed chan struct{} // closed, and replaced, when an entry was saved or running has one less
}

func newCommandLog() commandLog {
	return commandLog{turn: newSlots(1), running: map[berth.LogID]berth.ContainerLog{}, changed: make(chan struct{})}
}

// Logs are the logs of the commands that ran in containers.
type Logs struct {
	opts  *Options
	index *index
}

// A command is one that runs, for its log. Its methods are not for concurrent use.
type command struct {
	logs  *Logs
	s     *instance
	entry berth.ContainerLog
	began time.Time
	out   [2]excerpt // stdout and stderr
	ended bool
}

// logCommands saves that commands begin and returns their logs. A failure to do so
// is for the operator: commands run all the same.
func (l *Logs) start(ctx context.Context, s *instance, entries []berth.ContainerLog) []*command {
	commands := make([]*command, len(entries))
	s.log.mu.Lock()
	for i, e := range entries {
		if before, ok := s.log.running[e.ID]; ok { // of a call that is taken up again
			e.CreatedAt = before.CreatedAt
		}
		e.Object, e.ContainerID = "container.log", s.id
		e.Command = shorten(e.Command)
		began := l.opts.now()
		if e.CreatedAt == 0 {
			e.CreatedAt = began.Unix()
		} else {
			began = time.Unix(e.CreatedAt, 0)
		}
		s.log.running[e.ID] = e
		commands[i] = &command{logs: l, s: s, entry: e, began: began}
	}
	s.log.mu.Unlock()
	if err := l.saveRunning(ctx, s); err != nil && !errors.Is(err, store.ErrNotFound) {
		l.opts.Log.Error("that commands began was not saved", "container", s.id, "err", err)
	}
	return commands
}

// saveRunning saves which commands run.
func (l *Logs) saveRunning(ctx context.Context, s *instance) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logTime)
	defer cancel()
	if err := s.log.turn.acquire(ctx); err != nil {
		return err
	}
	defer s.log.turn.release()
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
		err := l.opts.Store.CreateObjects(ctx, s.project, &store.Object{ObjectKey: key, CreatedAt: l.opts.now().Unix(), Body: body})
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

// print takes what the command printed; skipped bytes before it are lost.
func (c *command) print(stream int, data []byte, skipped int64) { c.out[stream].write(data, skipped) }

// end saves how the command ended, and then tells followers.
func (c *command) end(outcome berth.ShellOutcome) {
	if c.ended {
		return
	}
	c.ended = true
	c.entry.Outcome = outcome
	took := max(0, c.logs.opts.now().Sub(c.began))
	c.entry.DurationMS = took.Milliseconds()
	c.logs.opts.Observer.Ran(c.entry.Source, ranAs(outcome), took)
	c.entry.Stdout, c.entry.Stderr = c.out[0].text(), c.out[1].text()
	ctx, cancel := context.WithTimeout(context.Background(), logTime)
	defer cancel()
	if err := c.logs.save(ctx, c.s, c.entry); err != nil {
		c.logs.opts.Log.Error("a command was not logged", "container", c.s.id, "log", c.entry.ID, "err", err)
	}
}

// saveLog saves an entry. One that is there already, and one of a container that is
// deleted, is no matter.
func (l *Logs) save(ctx context.Context, s *instance, e berth.ContainerLog) error {
	err := s.log.turn.acquire(ctx)
	if err == nil {
		err = l.append(ctx, s, e)
		s.log.turn.release()
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	delete(s.log.running, e.ID)
	close(s.log.changed)
	s.log.changed = make(chan struct{})
	return err
}

// appendLog is called with the turn of s.log taken.
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
		s.log.loaded = false // it may have been saved all the same
		return err
	}
	s.log.next++
	if s.log.next > maxLogs && s.log.next%logSlack == 0 {
		return l.trim(ctx, s)
	}
	return nil
}

// trimLog deletes the oldest entries.
func (l *Logs) trim(ctx context.Context, s *instance) error {
	oldest, _, err := l.page(ctx, s.project, s.id, store.Page{Limit: 2 * logSlack, Ascending: true})
	for _, e := range oldest {
		if e.SequenceNumber >= s.log.next-maxLogs {
			break
		}
		key := store.ObjectKey{Kind: kindLog, Parent: string(s.id), ID: string(e.ID)}
		err = errors.Join(err, ignoreNotFound(l.opts.Store.DeleteObject(ctx, s.project, key)))
	}
	return err
}

// recoverLog takes over which commands ran when a former process ended. Those that
// nobody will take up again are logged as they are known. Shell calls of a sandbox
// that lives are taken up by their responses.
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
		return err
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

// Logs returns one page of a container's log and whether there is more.
func (l *Logs) List(ctx context.Context, p berth.ProjectID, id berth.ContainerID, page store.Page) ([]*berth.ContainerLog, bool, error) {
	if err := l.exists(ctx, p, id); err != nil {
		return nil, false, err
	}
	return l.page(ctx, p, id, page)
}

func (l *Logs) exists(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	_, err := l.opts.Store.GetContainer(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	}
	return err
}

func (l *Logs) page(ctx context.Context, p berth.ProjectID, id berth.ContainerID, page store.Page) ([]*berth.ContainerLog, bool, error) {
	objects, more, err := l.opts.Store.ListObjects(ctx, p, kindLog, string(id), page)
	if err != nil {
		return nil, false, err
	}
	entries := make([]*berth.ContainerLog, len(objects))
	for i, o := range objects {
		entries[i] = &berth.ContainerLog{}
		if err := json.Unmarshal(o.Body, entries[i]); err != nil {
			return nil, false, err
		}
	}
	return entries, more, nil
}

// FollowLogs yields the entries of a container's log whose sequence numbers are
// above after, and then the new ones, until the container has ended, ctx does, or
// this keeper closes. An error is the last thing that it yields.
func (l *Logs) Follow(ctx context.Context, p berth.ProjectID, id berth.ContainerID, after int64) iter.Seq2[*berth.ContainerLog, error] {
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
					last, more = "", true // the last one has gone meanwhile
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
				ended = nil // what ran is saved in a moment
				end = time.After(logTime)
			case <-end:
				return
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// logState returns a channel that is closed when the log changes, and whether it
// does not any more: the sandbox is gone and no command is left of it.
func (s *instance) logState() (changed <-chan struct{}, over bool) {
	if s == nil {
		return nil, true
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.changed, s.life.Err() != nil && len(s.log.running) == 0
}
