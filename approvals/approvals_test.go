package approvals

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store/sqlite"
)

var (
	me     = berth.Caller{Project: "proj_a", Key: "key_a"}
	person = berth.Caller{Project: "proj_a", Key: "key_p"}
)

func newTest(t *testing.T) (*Service, *clock.Manual) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	now := clock.NewManual(time.Unix(1_000_000, 0))
	return New(Options{Objects: db, Clock: now}), now
}

// ask makes a call that has its answer.
func ask(t *testing.T, s *Service, c berth.Caller, call Call) *Approval {
	t.Helper()
	a, err := s.Ask(t.Context(), c, call, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// question makes a call, and returns its question as soon as a person can see it.
func question(t *testing.T, s *Service, c berth.Caller, call Call) *Approval {
	t.Helper()
	gone, leave := context.WithCancel(t.Context())
	defer leave()
	a, err := s.Ask(gone, c, call, func(*Approval) { leave() })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func callOf(arguments string) Call {
	return Call{Tool: "run", Arguments: json.RawMessage(arguments), Scope: "box"}
}

// An answer is for one call, with the same arguments, place and key, and for none after that.
func TestOneAnswerOneCall(t *testing.T) {
	t.Parallel()
	s, _ := newTest(t)
	call := callOf(`{"command":"rm -r a"}`)
	a := question(t, s, me, call)
	if a.Status != Pending || string(a.Arguments) != `{"command":"rm -r a"}` || *a.APIKeyID != me.Key {
		t.Fatalf("asked %+v", a)
	}
	if again := question(t, s, me, call); again.ID != a.ID {
		t.Errorf("the same call asks again: %s, %s", again.ID, a.ID)
	}
	if _, err := s.Answer(t.Context(), person, a.ID, true, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(t.Context(), person, a.ID, false, ""); berth.ErrorCode(err) != berth.CodeConflict {
		t.Errorf("a second answer: %v", err)
	}
	other := me
	other.Key = "key_b"
	elsewhere := call
	elsewhere.Scope = "other box"
	tool := call
	tool.Tool = "code"
	for name, got := range map[string]*Approval{
		"arguments": question(t, s, me, callOf(`{"command":"rm -r /"}`)), "place": question(t, s, me, elsewhere),
		"key": question(t, s, other, call), "tool": question(t, s, me, tool)} {
		if got.Status != Pending || got.ID == a.ID {
			t.Errorf("a call with another %s: %+v", name, got)
		}
	}
	if got := ask(t, s, me, callOf(` { "command" : "rm -r a" } `)); got.Status != Approved || *got.AnsweredBy != person.Key {
		t.Errorf("the approved call: %+v", got)
	}
	if got := question(t, s, me, call); got.Status != Pending || got.ID == a.ID {
		t.Errorf("the same call once more: %+v", got)
	}
}

// A call waits for its answer. Of two that wait for the same one, one gets it.
func TestWait(t *testing.T) {
	t.Parallel()
	s, _ := newTest(t)
	asked, ended := make(chan berth.ApprovalID, 10), make(chan *Approval, 2)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 2 {
		go func() {
			a, err := s.Ask(ctx, me, callOf(`{"n":1}`), func(a *Approval) { asked <- a.ID })
			if err != nil {
				t.Error(err)
			}
			ended <- a
		}()
	}
	if _, err := s.Answer(t.Context(), person, <-asked, true, ""); err != nil {
		t.Fatal(err)
	}
	if a := <-ended; a.Status != Approved {
		t.Fatalf("the first call: %+v", a)
	}
	<-asked // the other call's question, at its start or anew
	leave()
	if a := <-ended; a.Status != Pending {
		t.Errorf("the other call: %+v", a)
	}
}

// A denial has a reason. A question expires, and the answer to it, too.
func TestEnds(t *testing.T) {
	t.Parallel()
	s, now := newTest(t)
	a := question(t, s, me, callOf(`{}`))
	if _, err := s.Answer(t.Context(), person, a.ID, false, "not today"); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, me, callOf(``)); got.Status != Denied || got.Reason != "not today" {
		t.Errorf("denied: %+v", got)
	}
	a = question(t, s, me, callOf(`{}`))
	if _, err := s.Answer(t.Context(), person, a.ID, true, ""); err != nil {
		t.Fatal(err)
	}
	now.Advance(time.Hour)
	if _, err := s.Get(t.Context(), me.Project, a.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("an expired answer: %v", err)
	}
	if got := question(t, s, me, callOf(`{}`)); got.Status != Pending {
		t.Errorf("an expired answer was used: %+v", got)
	}
	stranger := person
	stranger.Project = "proj_b"
	if _, err := s.Answer(t.Context(), stranger, a.ID, true, ""); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("an answer of another project: %v", err)
	}
}

// Questions are bounded, and so are their arguments: a person must see all of them.
func TestBounds(t *testing.T) {
	t.Parallel()
	s, _ := newTest(t)
	long := `{"content":"` + strings.Repeat("x", MaxArguments) + `"}`
	if _, err := s.Ask(t.Context(), me, callOf(long), nil); berth.ErrorCode(err) != berth.CodeTooLarge {
		t.Errorf("long arguments: %v", err)
	}
	if _, err := s.Ask(t.Context(), me, callOf(`{`), nil); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("no JSON: %v", err)
	}
	for i := range maxOpen {
		question(t, s, me, callOf(`{"n":`+strconv.Itoa(i)+`}`))
	}
	if _, err := s.Ask(t.Context(), me, callOf(`{"n":-1}`), nil); berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("one more: %v", err)
	}
}
