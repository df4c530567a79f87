package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

var errDiskFull = errors.New("the disk is full")

// An outage is a store that can be made to fail, as one does whose disk is full:
// nothing can be written, all can be read.
type outage struct {
	store.Store
	saves bool // a failing append is saved nevertheless

	mu     sync.Mutex
	failed chan struct{} // closed by the first write that fails; nil while all work
}

// start makes all writes fail. The channel is closed when the next write has failed.
func (o *outage) start() (failed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = make(chan struct{})
	return o.failed
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = nil
}

func (o *outage) fails() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		return false
	}
	select {
	case <-o.failed:
	default:
		close(o.failed)
	}
	return true
}

func (o *outage) AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string,
	events []store.Event, body *berth.Response, also ...*store.Object) error {
	if !o.fails() {
		return o.Store.AppendEvents(ctx, p, id, owner, events, body, also...)
	}
	if o.saves {
		o.saves = false
		_ = o.Store.AppendEvents(ctx, p, id, owner, events, body, also...)
	}
	return errDiskFull
}

func (o *outage) AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease,
	now time.Time) error {
	if o.fails() {
		return errDiskFull
	}
	return o.Store.AcquireRun(ctx, p, id, lease, now)
}

func (o *outage) RenewRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease) error {
	if o.fails() {
		return errDiskFull
	}
	return o.Store.RenewRun(ctx, p, id, lease)
}

func (o *outage) ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error {
	if o.fails() {
		return errDiskFull
	}
	return o.Store.ReleaseRun(ctx, p, id, owner)
}

func (o *outage) ReleaseOwner(ctx context.Context, owner string) error {
	if o.fails() {
		return errDiskFull
	}
	return o.Store.ReleaseOwner(ctx, owner)
}

func (o *outage) DeleteResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	if o.fails() {
		return errDiskFull
	}
	return o.Store.DeleteResponse(ctx, p, id)
}

func newOutage(t *testing.T, turns ...turn) (*house, *outage) {
	h := newHouse(t, turns...)
	o := &outage{Store: h.store}
	h.stop()
	h.store = o
	h.start()
	return h, o
}

// printer adds a command that prints the values sent to words, until words is closed or the command is killed.
func (h *house) printer(name string) (words chan string) {
	words = make(chan string)
	h.containers.commands[name] = func(c *fakeCall) {
		for {
			select {
			case word, more := <-words:
				if !more {
					c.exit(0)
					return
				}
				c.print(word)
			case <-c.killed:
				return
			}
		}
	}
	return words
}

func (h *house) printed(id berth.ResponseID) string {
	h.t.Helper()
	var all string
	for _, ev := range h.events(id) {
		var d berth.ShellDelta
		if ev.Type == berth.EventShellOutputDelta && json.Unmarshal(ev.Delta, &d) == nil {
			all += d.Stdout
		}
	}
	return all
}

// The store fails while a command prints, and recovers. The same server continues the
// response and its command, which ran once. Followers, which include foreground requests,
// see no error.
func TestOutageDuringCommand(t *testing.T) {
	t.Parallel()
	for name, saves := range map[string]bool{"the failing write is lost": false, "the failing write is saved": true} {
		runInBubble(t, name, func(t *testing.T) {
			h, o := newOutage(t, shell("call_1", `{"commands":["count"]}`), say("counted"))
			o.saves = saves
			words := h.printer("count")
			r := h.create(`{` + withShell + `,"input":"x"}`)
			words <- "one "
			h.waitFor(r.ID, berth.EventShellOutputDelta)
			failed := o.start()
			words <- "two "
			<-failed
			words <- "three "
			o.end()
			words <- "four"
			close(words)
			got := h.final(r.ID)
			want := []string{"shell_call completed count", "shell_call_output completed [one two three four exit 0]",
				"message completed counted"}
			if diff := cmp.Diff(want, outline(t, got.Output)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"count"}, h.containers.ran); diff != "" {
				t.Errorf("commands run (-want +got):\n%s", diff)
			}
			if got := h.printed(r.ID); got != "one two three four" {
				t.Errorf("the deltas bring %q, want each character once", got)
			}
		})
	}
}

// The store fails while the model writes. The turn is requested again.
func TestOutageMidSentence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, o := newOutage(t, turn{model.Text{Text: "I was "}, model.Text{Text: "about"}}, say("Here I am."))
		h.model.gate = make(chan struct{}, 2)
		r := h.create(`{"model":"played","input":"x","background":true}`)
		failed := o.start()
		h.model.gate <- struct{}{}
		<-failed
		o.end()
		h.model.gate <- struct{}{}
		got := h.final(r.ID)
		if diff := cmp.Diff([]string{"message completed Here I am."}, outline(t, got.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if got.Status != berth.StatusCompleted {
			t.Errorf("status: got %s", got.Status)
		}
	})
}

// A follower of a run whose events cannot be stored gets an error in bounded time. If its
// client then disconnects, the run ends as cancelled once that can be stored.
func TestOutageEndsFollowers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, background := range []bool{true, false} {
			h, o := newOutage(t, shell("call_1", `{"commands":["count"]}`), say("counted"))
			h.stop()
			h.follow = time.Millisecond
			h.start()
			words := h.printer("count")
			ctx, leave := context.WithCancel(t.Context())
			body := `{` + withShell + `,"input":"x"}`
			want := berth.StatusCancelled
			if background {
				body = `{` + withShell + `,"input":"x","background":true}`
				want = berth.StatusCompleted
			}
			r, err := h.tryCreate(ctx, body)
			if err != nil {
				t.Fatal(err)
			}
			words <- "one "
			h.waitFor(r.ID, berth.EventShellOutputDelta)
			failed := o.start()
			words <- "two"
			<-failed
			var last error
			for _, err := range h.journal.Follow(t.Context(), project, r.ID, -1) {
				last = err
			}
			if berth.ErrorCode(last) != berth.CodeUnavailable {
				t.Errorf("the follower got %v, want %s", last, berth.CodeUnavailable)
			}
			leave()
			o.end()
			if background {
				close(words)
			}
			h.settled(r.ID)
			if got := h.final(r.ID); got.Status != want {
				t.Errorf("background %v: got %s, want %s", background, got.Status, want)
			}
		}
	})
}

// A cancellation that cannot be stored returns an error each time, and takes effect later.
func TestCancelDuringOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, o := newOutage(t, shell("call_1", `{"commands":["count"]}`), say("counted"))
		words := h.printer("count")
		r := h.create(`{` + withShell + `,"input":"x","background":true}`)
		words <- "one"
		h.waitFor(r.ID, berth.EventShellOutputDelta)
		o.start()
		for range 3 {
			got, err := h.engine.Cancel(t.Context(), caller, r.ID)
			if berth.ErrorCode(err) != berth.CodeUnavailable {
				t.Errorf("cancel: got %v, %v, want %s", got, err, berth.CodeUnavailable)
			}
		}
		o.end()
		got, err := h.engine.Cancel(t.Context(), caller, r.ID)
		if err != nil || got.Status != berth.StatusCancelled {
			t.Errorf("cancel after the outage: got %v, %v", got, err)
		}
		lines := outline(t, h.final(r.ID).Output)
		if len(lines) != 2 || !strings.HasPrefix(lines[1], "shell_call_output incomplete [one") {
			t.Errorf("output: got %q", lines)
		}
	})
}

// Any server can cancel a response that no server holds: its commands end, and the model
// is not called again.
func TestCancelOrphan(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["count"]}`), say("counted"))
		words := h.printer("count")
		r := h.create(`{` + withShell + `,"input":"x","background":true}`)
		words <- "one"
		h.waitFor(r.ID, berth.EventShellOutputDelta)
		h.stop()
		h.start() // and no Recover
		got, err := h.engine.Cancel(t.Context(), caller, r.ID)
		if err != nil || got.Status != berth.StatusCancelled {
			t.Fatalf("got %v, %v", got, err)
		}
		h.final(r.ID)
		for _, c := range h.containers.calls {
			<-c.killed
		}
		if n := len(h.model.requests); n != 1 {
			t.Errorf("the model was called %d times, want once", n)
		}
	})
}

// Another server, or this one, resumes a run with a lapsed lease without a restart. The
// server that lost the lease adds no events.
func TestLapsedLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, o := newOutage(t, shell("call_1", `{"commands":["count"]}`), say("counted"))
		h.lease = 50 * time.Millisecond
		h.stop()
		h.start()
		words := h.printer("count")
		r := h.create(`{` + withShell + `,"input":"x","background":true}`)
		words <- "one "
		h.waitFor(r.ID, berth.EventShellOutputDelta)
		o.start() // from now on the first server can renew nothing
		first := h.engine
		other := &house{t: t, log: t.Output(), store: o.Store, model: h.model, containers: h.containers, lease: h.lease,
			owner: "other"}
		other.start()
		defer other.stop()
		if err := other.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		words <- "two "
		time.Sleep(2 * h.lease)
		if err := o.Store.AcquireRun(t.Context(), project, r.ID, store.Lease{Owner: "test", Until: time.Now()},
			time.Now()); !errors.Is(err, store.ErrConflict) {
			t.Errorf("the other server has not resumed the run: %v", err)
		}
		o.end()
		words <- "three"
		close(words)
		got := other.final(r.ID)
		want := []string{"shell_call completed count", "shell_call_output completed [one two three exit 0]",
			"message completed counted"}
		if diff := cmp.Diff(want, outline(t, got.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if got := other.printed(r.ID); got != "one two three" {
			t.Errorf("the deltas bring %q", got)
		}
		first.Settled(r.ID)
		if diff := cmp.Diff([]string{"count"}, h.containers.ran); diff != "" {
			t.Errorf("commands run (-want +got):\n%s", diff)
		}
	})
}

// elsewhere are other servers that may have taken all containers over.
type elsewhere struct {
	cluster.Solo
	moved atomic.Bool
}

func (o *elsewhere) Alone() bool { return false }

func (o *elsewhere) Where(_ context.Context, of cluster.Object, aim cluster.Aim) (cluster.Place, error) {
	if of.Container != "" && aim == cluster.Resume && o.moved.Load() {
		return cluster.Place{Server: "other"}, nil
	}
	return cluster.Place{}, nil
}

// A server that returns from an outage leaves a run to the server that has taken its container
// over, also while that one has not resumed it yet.
func TestMovedDuringOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, o := newOutage(t, shell("call_1", `{"commands":["count"]}`), say("counted"))
		h.stop()
		others := &elsewhere{}
		h.others = others
		h.start()
		words := h.printer("count")
		r := h.create(`{` + withShell + `,"input":"x","background":true}`)
		words <- "one "
		h.waitFor(r.ID, berth.EventShellOutputDelta)
		failed := o.start()
		words <- "two "
		<-failed
		others.moved.Store(true)
		if err := o.Store.ReleaseOwner(t.Context(), "test"); err != nil { // as its removal does
			t.Fatal(err)
		}
		o.end()
		h.settled(r.ID)
		rec, err := o.Store.GetResponse(t.Context(), project, r.ID)
		if err != nil || rec.Body.Status != berth.StatusInProgress {
			t.Fatalf("on the server that has not the container: got %+v, %v, want it in progress", rec, err)
		}
		other := &house{t: t, log: t.Output(), store: o.Store, model: h.model, containers: h.containers, owner: "other"}
		other.start()
		defer other.stop()
		if err := other.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		words <- "three"
		close(words)
		want := []string{"shell_call completed count", "shell_call_output completed [one two three exit 0]",
			"message completed counted"}
		if diff := cmp.Diff(want, outline(t, other.final(r.ID).Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"count"}, h.containers.ran); diff != "" {
			t.Errorf("commands run (-want +got):\n%s", diff)
		}
	})
}

// unrenewed is a store that renews no lease for some time, as if the server was paused.
type unrenewed struct {
	store.Store
	paused atomic.Bool
}

func (s *unrenewed) RenewRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease) error {
	if s.paused.Load() {
		return errDiskFull
	}
	return s.Store.RenewRun(ctx, p, id, lease)
}

// A server that was paused for longer than its lease cancels nothing: a call continues, and is resumed by
// the same server if no other one has its container.
func TestPausedBeyondLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["count"]}`), say("counted"))
		s := &unrenewed{Store: h.store}
		h.stop()
		h.store, h.others, h.lease = s, &elsewhere{}, 50*time.Millisecond
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		words := h.printer("count")
		r := h.create(`{` + withShell + `,"input":"x","background":true}`)
		words <- "one "
		h.waitFor(r.ID, berth.EventShellOutputDelta)
		s.paused.Store(true)
		h.settled(r.ID) // it notices that the lease has ended
		s.paused.Store(false)
		words <- "two"
		close(words)
		want := []string{"shell_call completed count", "shell_call_output completed [one two exit 0]",
			"message completed counted"}
		if diff := cmp.Diff(want, outline(t, h.final(r.ID).Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"count"}, h.containers.ran); diff != "" {
			t.Errorf("commands run (-want +got):\n%s", diff)
		}
	})
}

// A server starts although its store fails, and resumes its responses later.
func TestRecoverDuringOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, o := newOutage(t, turn{model.Text{Text: "I was about"}, hang{}}, say("Here I am."))
		h.lease = 50 * time.Millisecond
		r := h.create(`{"model":"played","input":"x","background":true}`)
		h.waitFor(r.ID, berth.EventOutputTextDelta)
		o.start()
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.end()
		if err := h.store.AcquireRun(t.Context(), project, r.ID, store.Lease{Owner: "test", Until: time.Now()},
			time.Now()); err != nil {
			t.Fatal(err) // the lease of the first life, which is long, ends
		}
		got := h.final(r.ID)
		if diff := cmp.Diff([]string{"message incomplete I was about", "message completed Here I am."},
			outline(t, got.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

// A sweep does not delete a response that is not stored while its client reads it,
// although its ended run renews no lease.
func TestSweepSparesReaders(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("secret"))
		h.stop()
		h.lease = time.Millisecond
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		r, err := h.tryCreate(ctx, `{"model":"played","input":"x","store":false}`)
		if err != nil {
			t.Fatal(err)
		}
		h.events(r.ID)
		h.settled(r.ID)
		for range 3 {
			if err := h.engine.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.store.GetResponse(t.Context(), project, r.ID); err != nil {
			t.Errorf("the response is gone before its client: %v", err)
		}
		leave()
		wantGone(t, h.store, r.ID)
	})
}

// A later sweep deletes a response with store false whose deletion failed.
func TestSweepRemovesUnstored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, o := newOutage(t, say("secret"))
		h.stop()
		h.lease = time.Millisecond
		h.start()
		ctx, leave := context.WithCancel(t.Context())
		r, err := h.tryCreate(ctx, `{"model":"played","input":"x","store":false}`)
		if err != nil {
			t.Fatal(err)
		}
		h.events(r.ID)
		h.settled(r.ID)
		failed := o.start()
		leave()
		<-failed
		o.end()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantGone(t, h.store, r.ID)
	})
}

// wantGone checks that a response is deleted once nothing more happens at this time.
func wantGone(t *testing.T, st store.Responses, id berth.ResponseID) {
	t.Helper()
	synctest.Wait()
	if _, err := st.GetResponse(t.Context(), project, id); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("response %s is still in the store: %v", id, err)
	}
}
