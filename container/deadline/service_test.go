package deadline_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// The tests run in bubbles, with the store: a deadline passes when nothing runs any more.

const (
	project = berth.ProjectID("proj_mine")
	box     = berth.ContainerID("cntr_box")
)

// fakeContainers has the containers that a test makes.
type fakeContainers struct {
	mu     sync.Mutex
	status map[berth.ContainerID]string
	busy   map[berth.ContainerID]int // pauses that a call still prevents
	ended  func(berth.ProjectID, berth.ContainerID)
	held   chan struct{} // if it is set, pauses end when it is closed
}

func (f *fakeContainers) Get(_ context.Context, _ berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status[id] == "" {
		return nil, berth.Errorf(berth.CodeNotFound, "no container %s", id)
	}
	return &berth.Container{ID: id, Status: berth.ContainerRunning}, nil
}

func (f *fakeContainers) set(id berth.ContainerID, from, to string) (*berth.Container, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status[id] != from {
		return nil, berth.Errorf(berth.CodeNotFound, "no container %s is %s", id, from)
	}
	if f.busy[id] > 0 {
		f.busy[id]--
		return nil, berth.Errorf(berth.CodeConflict, "container %s is in use", id)
	}
	f.status[id] = to
	return &berth.Container{ID: id, Status: berth.ContainerRunning}, nil
}

func (f *fakeContainers) Pause(_ context.Context, _ berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	if f.held != nil {
		<-f.held
	}
	return f.set(id, "running", "paused")
}

func (f *fakeContainers) Resume(_ context.Context, _ berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	return f.set(id, "paused", "running")
}

func (f *fakeContainers) Reboot(_ context.Context, _ berth.ProjectID, id berth.ContainerID, _ []string) error {
	_, err := f.set(id, "paused", "rebooted")
	return err
}

func (f *fakeContainers) Delete(_ context.Context, p berth.ProjectID, id berth.ContainerID) error {
	f.mu.Lock()
	known := f.status[id] != ""
	delete(f.status, id)
	f.mu.Unlock()
	if !known {
		return berth.Errorf(berth.CodeNotFound, "no container %s", id)
	}
	f.ended(p, id)
	return nil
}

func (f *fakeContainers) OnEnded(ended func(berth.ProjectID, berth.ContainerID)) { f.ended = ended }

// is returns the state of a container: running, paused, or empty if it has ended.
func (f *fakeContainers) is(id berth.ContainerID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status[id]
}

// A bench is a Service that runs, with its store and containers.
type bench struct {
	*deadline.Service
	*testing.T
	containers *fakeContainers
	store      *sqlite.DB
	stop       func() // ends Run; it may be called again
}

// inBubble runs a test with a Service in a bubble.
func inBubble(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		b := &bench{T: t, store: db, containers: &fakeContainers{status: map[berth.ContainerID]string{},
			busy: map[berth.ContainerID]int{}}}
		b.serve()
		defer func() { b.stop() }()
		f(b)
	})
}

// serve starts a Service in place of the one that runs.
func (b *bench) serve() {
	if b.stop != nil {
		b.stop()
	}
	b.Service = deadline.New(deadline.Options{Containers: b.containers, Objects: b.store,
		Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	service := b.Service
	running.Go(func() { service.Run(ctx) })
	b.stop = func() { cancel(); running.Wait() }
}

// create makes a sandbox that is due after life.
func (b *bench) create(id berth.ContainerID, onTimeout string, life time.Duration) {
	b.Helper()
	b.containers.mu.Lock()
	b.containers.status[id] = "running"
	b.containers.mu.Unlock()
	now := time.Now()
	err := b.Create(b.Context(), project, &berth.Container{ID: id, Status: berth.ContainerRunning, MemoryLimit: "1g"},
		&deadline.Record{Template: "base", OnTimeout: onTimeout, StartedAt: now.UnixMilli(),
			Deadline: now.Add(life).Unix()})
	if err != nil {
		b.Fatal(err)
	}
}

// pass lets time pass.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

// want fails unless a container is in a state.
func (b *bench) want(id berth.ContainerID, state string) {
	b.Helper()
	if got := b.containers.is(id); got != state {
		b.Errorf("%s is %q, want %q", id, got, state)
	}
}

// settle waits until a pause or its record does not change any more: the container is paused first.
func (b *bench) settle(id berth.ContainerID) {
	b.Helper()
	done, err := b.Turn(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	done()
}

// events returns the types of a sandbox's events, the oldest first.
func (b *bench) events(id berth.ContainerID) (all []berth.EventType) {
	b.Helper()
	list, err := b.ListEventsOf(b.Context(), project, id, deadline.EventQuery{Limit: 100, Ascending: true})
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range list {
		all = append(all, e.Type)
	}
	return all
}

func (b *bench) wantEvents(id berth.ContainerID, want ...berth.EventType) {
	b.Helper()
	if got := b.events(id); !slices.Equal(got, want) {
		b.Errorf("events of %s: got %v, want %v", id, got, want)
	}
}

func TestDeadlineKills(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutKill, 90*time.Second)
		b.create("cntr_later", deadline.OnTimeoutKill, 200*time.Second)
		b.pass(89 * time.Second)
		b.want(box, "running")
		b.pass(time.Second)
		b.want(box, "")
		b.want("cntr_later", "running")
		if _, _, err := b.Read(b.Context(), project, box); berth.ErrorCode(err) != berth.CodeNotFound {
			b.Errorf("Read after the deadline: got %v, want a not-found error", err)
		}
		b.wantEvents(box, berth.EventSandboxCreated, berth.EventSandboxKilled)
	})
}

// A deadline that was set before the former one has passed counts, earlier or later.
func TestDeadlineMoves(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutKill, 90*time.Second)
		b.create("cntr_sooner", deadline.OnTimeoutKill, time.Hour)
		move := func(id berth.ContainerID, to time.Duration) {
			_, err := b.Update(b.Context(), project, id, func(rec *deadline.Record) error {
				b.SetDeadline(project, id, rec, time.Now().Add(to).Unix())
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		move(box, 300*time.Second)
		move("cntr_sooner", 10*time.Second)
		b.pass(299 * time.Second)
		b.want("cntr_sooner", "")
		b.want(box, "running")
		b.pass(time.Second)
		b.want(box, "")
		b.wantEvents(box, berth.EventSandboxCreated, berth.EventSandboxUpdated, berth.EventSandboxKilled)
	})
}

// A paused sandbox has no deadline until it is resumed. Connections to it end before it is paused.
func TestDeadlinePauses(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutPause, 30*time.Second)
		connected, done := b.Connect(b.Context(), box)
		var closing sync.WaitGroup
		closing.Go(func() { <-connected.Done(); done() })
		b.pass(30 * time.Second)
		closing.Wait()
		b.want(box, "paused")
		b.pass(2 * time.Hour)
		b.want(box, "paused")
		b.settle(box)
		rec, err := b.IfPaused(b.Context(), project, box)
		if err != nil || rec == nil {
			b.Fatalf("IfPaused: got %v, %v", rec, err)
		}
		if err := b.Resume(b.Context(), project, box, rec); err != nil {
			b.Fatal(err)
		}
		_, err = b.Update(b.Context(), project, box, func(rec *deadline.Record) error {
			b.SetResumed(project, box, rec, time.Now().Add(time.Minute).Unix())
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		b.want(box, "running")
		b.pass(time.Minute)
		b.want(box, "paused")
	})
}

// A client that connects while a sandbox is being paused waits for the end of the pause, and then resumes it.
func TestConnectDuringPause(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.containers.held = make(chan struct{})
		b.create(box, deadline.OnTimeoutPause, 30*time.Second)
		b.pass(30 * time.Second)
		var rec *deadline.Record
		var connecting sync.WaitGroup
		connecting.Go(func() {
			done, err := b.Turn(b.Context(), box)
			if err != nil {
				b.Error(err)
				return
			}
			defer done()
			if rec, err = b.IfPaused(b.Context(), project, box); err != nil {
				b.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if _, err := b.Turn(ctx, box); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("a client that leaves: got %v", err)
		}
		close(b.containers.held)
		connecting.Wait()
		if rec == nil {
			b.Error("the client connected to a sandbox that is not paused yet")
		}
	})
}

// A deadline that passes while a client sets a later one in its turn pauses nothing.
func TestDeadlineDuringConnect(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutPause, 30*time.Second)
		done, err := b.Turn(b.Context(), box)
		if err != nil {
			b.Fatal(err)
		}
		b.pass(31 * time.Second)
		b.want(box, "running")
		_, err = b.Update(b.Context(), project, box, func(rec *deadline.Record) error {
			if !rec.Paused {
				b.SetDeadline(project, box, rec, time.Now().Add(time.Minute).Unix())
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		done()
		b.pass(time.Second)
		b.want(box, "running")
		b.pass(time.Minute)
		b.want(box, "paused")
	})
}

// A sandbox that is to keep its files only is paused at its deadline, and starts anew when it is resumed. Its contexts
// of the code interpreter are gone.
func TestDeadlinePausesFilesOnly(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutPause, 30*time.Second)
		change := func(f func(rec *deadline.Record)) {
			_, err := b.Update(b.Context(), project, box, func(rec *deadline.Record) error { f(rec); return nil })
			if err != nil {
				b.Fatal(err)
			}
		}
		change(func(rec *deadline.Record) {
			rec.KeepAtTimeout, rec.Contexts = deadline.FilesOnly, []deadline.Context{{ID: "context"}}
		})
		b.pass(30 * time.Second)
		b.want(box, "paused")
		b.settle(box)
		rec, err := b.IfPaused(b.Context(), project, box)
		if err != nil || rec == nil || !rec.FilesOnly {
			b.Fatalf("IfPaused: got %+v, %v", rec, err)
		}
		if err := b.Resume(b.Context(), project, box, rec); err != nil {
			b.Fatal(err)
		}
		b.want(box, "rebooted")
		change(func(rec *deadline.Record) {
			b.SetResumed(project, box, rec, time.Now().Add(time.Minute).Unix())
			if rec.FilesOnly || len(rec.Contexts) > 0 {
				b.Errorf("got %+v", rec)
			}
		})
	})
}

// A sandbox in which a call runs is not paused at its deadline but soon after the call.
func TestDeadlineWaitsForCall(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutPause, 30*time.Second)
		b.containers.mu.Lock()
		b.containers.busy[box] = 2
		b.containers.mu.Unlock()
		b.pass(30 * time.Second)
		b.want(box, "running")
		b.pass(10 * time.Second)
		b.want(box, "paused")
	})
}

// The service of the next start ends what was due while no server ran, and finds containers that ended then.
func TestDeadlineAfterRestart(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutKill, 30*time.Second)
		b.create("cntr_lost", deadline.OnTimeoutKill, time.Hour)
		b.create("cntr_kept", deadline.OnTimeoutKill, time.Hour)
		b.stop()
		b.containers.mu.Lock()
		delete(b.containers.status, "cntr_lost")
		b.containers.mu.Unlock()
		b.pass(time.Minute)
		b.want(box, "running")
		b.serve()
		b.pass(0)
		b.want(box, "")
		b.want("cntr_kept", "running")
		b.wantEvents("cntr_lost", berth.EventSandboxCreated, berth.EventSandboxKilled)
		for _, id := range []berth.ContainerID{box, "cntr_lost"} {
			key := store.ObjectKey{Kind: store.KindSandbox, ID: string(id)}
			if _, err := b.store.GetObject(b.Context(), project, key); !errors.Is(err, store.ErrNotFound) {
				b.Errorf("record of %s: got %v, want it deleted", id, err)
			}
		}
	})
}

// A container that ends by itself takes its sandbox with it.
func TestContainerEnds(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutKill, time.Hour)
		if err := b.containers.Delete(b.Context(), project, box); err != nil {
			b.Fatal(err)
		}
		b.pass(0)
		b.wantEvents(box, berth.EventSandboxCreated, berth.EventSandboxKilled)
		if n := b.Running(project); n != 0 {
			b.Errorf("%d sandboxes run, want none", n)
		}
	})
}

// The event of a change that was not made is not seen, and that of one that a crash interrupted is.
func TestDuring(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.create(box, deadline.OnTimeoutKill, time.Hour)
		failure := errors.New("it failed")
		err := b.During(b.Context(), project, box, berth.EventSandboxCheckpointed, func() error { return failure })
		if !errors.Is(err, failure) {
			b.Errorf("During: got %v, want %v", err, failure)
		}
		b.wantEvents(box, berth.EventSandboxCreated)
		err = b.During(b.Context(), project, box, berth.EventSandboxCheckpointed, func() error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		b.wantEvents(box, berth.EventSandboxCreated, berth.EventSandboxCheckpointed)

		func() {
			defer func() { _ = recover() }()
			_ = b.During(b.Context(), project, box, berth.EventSandboxCheckpointed, func() error {
				panic("the server crashes before it saves that the change was made")
			})
		}()
		b.serve()
		b.wantEvents(box, berth.EventSandboxCreated, berth.EventSandboxCheckpointed)
		b.pass(15 * time.Minute)
		b.wantEvents(box, berth.EventSandboxCreated, berth.EventSandboxCheckpointed, berth.EventSandboxCheckpointed)
	})
}
