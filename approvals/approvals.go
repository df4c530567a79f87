// Package approvals holds calls until a person has answered them. They come from clients that cannot ask their own
// user, such as clients of MCP without elicitation.
//
//	Ask ─▶ pending ─ Answer ─▶ approved or denied ─ Ask of the same call ─▶ gone
//
// An answer is for one call: who takes it deletes it. A question outlives the connection of its client, which makes
// the same call again and finds the answer.
package approvals

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
)

// Limits of questions.
const (
	MaxArguments = 64 << 10 // bytes: a person must see all that is approved
	MaxReason    = 1024     // characters
	maxOpen      = 100      // of a project
)

// A Status is the state of an approval.
type Status string

// States of an approval.
const (
	Pending  Status = "pending"
	Approved Status = "approved"
	Denied   Status = "denied"
)

// An Approval is a call that needs the answer of a person.
type Approval struct {
	ID         berth.ApprovalID `json:"id"`
	Object     string           `json:"object"` // "approval"
	Status     Status           `json:"status"`
	Tool       string           `json:"tool"`
	Title      string           `json:"title"`
	Arguments  json.RawMessage  `json:"arguments"`           // all of them
	Container  string           `json:"container,omitempty"` // absent for that of a session
	APIKeyID   *berth.KeyID     `json:"api_key_id"`          // that makes the call; null on a server without keys
	CreatedAt  int64            `json:"created_at"`
	ExpiresAt  int64            `json:"expires_at"`            // Unix seconds, after which a person is asked anew
	AnsweredBy *berth.KeyID     `json:"answered_by,omitempty"` // key, or person who has signed in
	Reason     string           `json:"reason,omitempty"`      // which the client reads
}

// A record is a stored approval.
type record struct {
	Approval
	Call string `json:"call"` // hash of the call, where it runs, and who makes it
}

// A Call is a call of a tool that must not run without an approval.
type Call struct {
	Tool, Title string
	Arguments   json.RawMessage
	Container   string // which a person sees; "" for that of a session
	Scope       any    // where the call would run, in JSON: an answer for another place is none
}

// An Auditor records actions; *audit.Log is one.
type Auditor interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
}

// Options are what a Service needs.
type Options struct {
	Objects store.Objects
	Watcher store.Watcher // of a store that several servers share; nil: answers come from this process only
	Audit   Auditor       // nil: no record
	Clock   clock.Clock   // default clock.System
	Life    time.Duration // after which a question expires; default 1 hour
}

// A Service holds the questions of all projects. It is safe for concurrent use.
type Service struct {
	Options

	mu       sync.Mutex
	answered chan struct{} // closed at the next answer
}

// New returns a service.
func New(opts Options) *Service {
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	if opts.Life == 0 {
		opts.Life = time.Hour
	}
	return &Service{Options: opts, answered: make(chan struct{})}
}

// Ask waits until a person has answered a call, and takes the answer. It returns a pending approval if ctx ends first;
// the same call finds the answer later. It calls asked, which may be nil, when a person can see the question.
func (s *Service) Ask(ctx context.Context, c berth.Caller, call Call, asked func(*Approval)) (*Approval, error) {
	r, err := newRecord(c, call)
	if err != nil {
		return nil, err
	}
	for {
		// A call that has no time to wait asks all the same.
		work := context.WithoutCancel(ctx)
		a, err := s.find(work, c.Project, r.Call)
		if err == nil && a == nil {
			a, err = s.create(work, c.Project, *r)
		}
		if err != nil {
			return nil, err
		}
		if a.Status == Pending && asked != nil {
			asked(a)
		}
		now, err := s.await(ctx, c.Project, a)
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil && (now == nil || now.Status == Pending):
			return a, nil
		case now == nil || now.Status == Pending:
			continue // it has expired, or the same call took the answer: a person is asked anew
		}
		err = s.Objects.DeleteObject(work, c.Project, keyOf(a.ID))
		if err == nil {
			return now, nil
		}
		if !errors.Is(err, store.ErrNotFound) { // the same call took it
			return nil, fmt.Errorf("take answer: %w", err)
		}
	}
}

// newRecord returns the record of a call, without an id.
func newRecord(c berth.Caller, call Call) (*record, error) {
	var arguments bytes.Buffer
	if err := json.Compact(&arguments, []byte(cmp.Or(string(call.Arguments), "{}"))); err != nil {
		return nil, berth.Invalid("arguments", "The arguments are not JSON.")
	}
	if arguments.Len() > MaxArguments {
		return nil, berth.Errorf(berth.CodeTooLarge, "This call needs the approval of a person, who must see all of it, "+
			"and its arguments are longer than %d bytes. Make several smaller calls.", MaxArguments)
	}
	identity, err := json.Marshal([]any{c.Key, call.Tool, call.Scope, arguments.String()})
	if err != nil {
		return nil, fmt.Errorf("encode call: %w", err)
	}
	hash := sha256.Sum256(identity)
	r := &record{Call: hex.EncodeToString(hash[:]), Approval: Approval{Object: "approval", Status: Pending,
		Tool: call.Tool, Title: call.Title, Container: call.Container, Arguments: arguments.Bytes()}}
	if c.Key != "" {
		r.APIKeyID = &c.Key
	}
	return r, nil
}

// find returns the question of a call that was made before, or nil.
func (s *Service) find(ctx context.Context, p berth.ProjectID, call string) (*Approval, error) {
	open, _, err := s.open(ctx, p, store.Page{Limit: maxOpen})
	if err != nil {
		return nil, err
	}
	for _, r := range open {
		if r.Call == call {
			return &r.Approval, nil
		}
	}
	return nil, nil
}

// create stores a question.
func (s *Service) create(ctx context.Context, p berth.ProjectID, r record) (*Approval, error) {
	open, more, err := s.open(ctx, p, store.Page{Limit: maxOpen})
	if err != nil {
		return nil, err
	}
	if more || len(open) >= maxOpen {
		return nil, berth.Errorf(berth.CodeRateLimited,
			"%d calls of the project wait for approval or have an answer already, which is the limit.", maxOpen)
	}
	r.ID = berth.ApprovalID(berth.NewID(berth.PrefixCallApproval))
	r.CreatedAt = s.Clock.Now().Unix()
	r.ExpiresAt = s.Clock.Now().Add(s.Life).Unix()
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode approval: %w", err)
	}
	if err := s.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: keyOf(r.ID), CreatedAt: r.CreatedAt,
		ExpiresAt: r.ExpiresAt, Body: body}); err != nil {
		return nil, fmt.Errorf("save approval: %w", err)
	}
	return &r.Approval, nil
}

// await waits until a question is answered or gone, which returns nil, or ctx ends.
func (s *Service) await(ctx context.Context, p berth.ProjectID, a *Approval) (*Approval, error) {
	var watch <-chan struct{}
	if s.Watcher != nil {
		wake, stop := s.Watcher.Watch(string(a.ID))
		defer stop()
		watch = wake
	}
	limited, cancel := s.Clock.WithTimeout(ctx, time.Unix(a.ExpiresAt, 0).Sub(s.Clock.Now()))
	defer cancel()
	for {
		s.mu.Lock()
		answered := s.answered
		s.mu.Unlock()
		now, err := s.Get(context.WithoutCancel(ctx), p, a.ID)
		if berth.ErrorCode(err) == berth.CodeNotFound {
			return nil, nil
		}
		if err != nil || now.Status != Pending || limited.Err() != nil {
			return now, err
		}
		select {
		case <-answered:
		case <-watch:
		case <-limited.Done():
		}
	}
}

// Answer answers a question for a call that waits, or that will be made again.
func (s *Service) Answer(ctx context.Context, c berth.Caller, id berth.ApprovalID, approve bool,
	reason string) (*Approval, error) {
	a, err := s.Get(ctx, c.Project, id)
	if err != nil {
		return nil, err
	}
	if a.Status != Pending {
		return nil, answeredAlready(id)
	}
	status, action := Denied, audit.ApprovalRefused
	if approve {
		status, action = Approved, audit.ApprovalGiven
	}
	// A person who approves is recorded before the call can run.
	if s.Audit != nil {
		if err := s.Audit.Commit(ctx, audit.Entry{Action: action, Project: c.Project, Key: c.Key, Object: string(id),
			Name: a.Tool}); err != nil {
			return nil, fmt.Errorf("record answer: %w", err)
		}
	}
	var r record
	_, err = s.Objects.UpdateObject(ctx, c.Project, keyOf(id), func(o *store.Object) error {
		r = record{}
		if err := json.Unmarshal(o.Body, &r); err != nil {
			return fmt.Errorf("decode approval: %w", err)
		}
		if r.Status != Pending {
			return answeredAlready(id)
		}
		r.Status, r.Reason, r.AnsweredBy = status, reason, &c.Key
		if c.Key == "" {
			r.AnsweredBy = nil
		}
		var err error
		o.Body, err = json.Marshal(r)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Approval", id)
	}
	if err != nil {
		return nil, fmt.Errorf("answer approval: %w", err)
	}
	s.mu.Lock()
	close(s.answered)
	s.answered = make(chan struct{})
	s.mu.Unlock()
	return &r.Approval, nil
}

func answeredAlready(id berth.ApprovalID) error {
	return berth.Errorf(berth.CodeConflict, "Approval '%s' has been answered already.", id)
}

// Get returns an approval of a project.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.ApprovalID) (*Approval, error) {
	o, err := s.Objects.GetObject(ctx, p, keyOf(id))
	if errors.Is(err, store.ErrNotFound) || err == nil && s.expired(o) {
		return nil, berth.NotFound("Approval", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read approval: %w", err)
	}
	r, err := decode(o)
	if err != nil {
		return nil, err
	}
	return &r.Approval, nil
}

// List returns one page of a project's approvals, and whether there are more.
func (s *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*Approval, bool, error) {
	open, more, err := s.open(ctx, p, page)
	if err != nil {
		return nil, false, err
	}
	list := make([]*Approval, len(open))
	for i, r := range open {
		list[i] = &r.Approval
	}
	return list, more, nil
}

// open returns one page of the records that have not expired.
func (s *Service) open(ctx context.Context, p berth.ProjectID, page store.Page) (open []*record, more bool, err error) {
	objects, more, err := s.Objects.ListObjects(ctx, p, store.KindApproval, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list approvals: %w", err)
	}
	for _, o := range objects {
		if s.expired(o) {
			continue
		}
		r, err := decode(o)
		if err != nil {
			return nil, false, err
		}
		open = append(open, r)
	}
	return open, more, nil
}

func (s *Service) expired(o *store.Object) bool { return o.ExpiresAt <= s.Clock.Now().Unix() }

func keyOf(id berth.ApprovalID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindApproval, ID: string(id)}
}

func decode(o *store.Object) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(o.Body, r); err != nil {
		return nil, fmt.Errorf("decode approval: %w", err)
	}
	return r, nil
}
