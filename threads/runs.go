package threads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

func runKey(thread, id string) store.ObjectKey {
	return store.ObjectKey{Kind: kindRun, Parent: thread, ID: id}
}

// nextKey returns the key of the slot after a run or, if prev is "", at the start of its
// thread. See kindNext.
func nextKey(thread, prev string) store.ObjectKey {
	if prev == "" {
		prev = thread
	}
	return store.ObjectKey{Kind: kindNext, Parent: prev, ID: "next"}
}

// CreateRun starts a run of an assistant on a thread. It returns an error if the thread has
// an active run.
func (s *Service) CreateRun(ctx context.Context, c berth.Caller, thread string, req *RunRequest) (started *Record,
	err error) {
	a, err := s.Catalog.Get(ctx, c.Project, req.AssistantID)
	if err != nil {
		return nil, err
	}
	t, err := s.Thread(ctx, c.Project, thread)
	if err != nil {
		return nil, err
	}
	prev, container, err := s.before(ctx, c, thread)
	if err != nil {
		return nil, err
	}
	_, messages, err := s.newMessages(ctx, c.Project, thread, req.AdditionalMessages, "additional_messages")
	if err != nil {
		return nil, err
	}
	var stores newStores
	defer func() { s.resources.discardOf(ctx, c.Project, thread, stores, err) }()
	if err := s.resources.attachTo(ctx, c.Project, t, req.AdditionalMessages, &stores); err != nil {
		return nil, err
	}
	r := newRecord(a, t, req, s.Now().Unix())
	r.Container = container
	made, err := runObjects(r, prev)
	if err != nil {
		return nil, err
	}
	made = append(messages, made...)
	switch err := s.Objects.CreateObjects(ctx, c.Project, made...); {
	case errors.Is(err, store.ErrExists): // another run was created first
		if _, other, err := s.latest(ctx, c, thread); err == nil && other != nil {
			prev = other.ID
		}
		return nil, alreadyActive(thread, prev)
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound("thread", thread)
	case err != nil:
		return nil, err
	}
	return s.startNew(ctx, c, r, made)
}

// before returns the run that precedes a new one on a thread, or "", and its container. It
// returns an error if that run is active.
func (s *Service) before(ctx context.Context, c berth.Caller, thread string) (run string, container berth.ContainerID,
	err error) {
	r, last, err := s.latest(ctx, c, thread)
	if err != nil || last == nil {
		return "", "", err
	}
	if last.Status.Active() {
		return "", "", alreadyActive(thread, last.ID)
	}
	container, err = s.container(ctx, c.Project, r)
	return last.ID, container, err
}

// CreateThreadAndRun creates a thread and starts a run of an assistant on it.
func (s *Service) CreateThreadAndRun(ctx context.Context, c berth.Caller, req *RunRequest) (t *Thread, r *Record,
	err error) {
	a, err := s.Catalog.Get(ctx, c.Project, req.AssistantID)
	if err != nil {
		return nil, nil, err
	}
	wanted := req.Thread
	if wanted == nil {
		wanted = &ThreadRequest{}
	}
	var stores newStores
	defer func() { s.resources.discard(ctx, c.Project, stores, err) }()
	if req.ToolResources != nil {
		if err := s.resources.resolve(ctx, c.Project, req.ToolResources, "tool_resources", nil); err != nil {
			return nil, nil, err
		}
	}
	t, made, err := s.newThread(ctx, c.Project, wanted, "thread", &stores)
	if err != nil {
		return nil, nil, err
	}
	r = newRecord(a, t, req, s.Now().Unix())
	run, err := runObjects(r, "")
	if err != nil {
		return nil, nil, err
	}
	if err := s.Objects.CreateObjects(ctx, c.Project, append(made, run...)...); err != nil {
		return nil, nil, err
	}
	r, err = s.startNew(ctx, c, r, made[:1]) // deleting the thread deletes the rest
	return t, r, err
}

// runObjects returns the objects to save for a new run: the slot after the run before it,
// and the run itself.
func runObjects(r *Record, prev string) ([]*store.Object, error) {
	o, err := objectOf(kindRun, r.Run.ThreadID, r.Run.ID, r.Run.CreatedAt, r)
	key := nextKey(r.Run.ThreadID, prev)
	return []*store.Object{{ObjectKey: key, CreatedAt: r.Run.CreatedAt, Body: json.RawMessage(`{}`)}, o}, err
}

func alreadyActive(thread, run string) error {
	return berth.Errorf(berth.CodeInvalid, "Thread %s already has an active run %s.", thread, run)
}

// startNew starts a run that has been saved. If the engine refuses it, startNew deletes the
// objects that were created for it.
func (s *Service) startNew(ctx context.Context, c berth.Caller, r *Record, made []*store.Object) (*Record, error) {
	ctx = context.WithoutCancel(ctx)
	started, err := s.start(ctx, c, r)
	if berth.ErrorCode(err) == "" || berth.ErrorCode(err) == berth.CodeInternal {
		return started, err // after an internal error, the next request for the run starts it
	}
	// Delete the slot before the run: as long as the run exists, no other run takes the slot.
	for _, o := range made {
		if err := s.Objects.DeleteObject(ctx, c.Project, o.ObjectKey); err != nil &&
			!errors.Is(err, store.ErrNotFound) {
			s.Log.Error("failed to delete objects of a refused run", "run", r.Run.ID, "request_id", c.RequestID, "err",
				err)
		}
	}
	return nil, err
}

// Run returns the current state of a run.
func (s *Service) Run(ctx context.Context, c berth.Caller, thread, id string) (*Run, error) {
	r, err := get[Record](ctx, s.Objects, c.Project, runKey(thread, id))
	if err != nil {
		return nil, err
	}
	run, _, err := s.current(ctx, c, r)
	return run, err
}

// Runs returns one page of a thread's runs and whether there are more.
func (s *Service) Runs(ctx context.Context, c berth.Caller, thread string, page store.Page) ([]*Run, bool, error) {
	if _, err := s.Thread(ctx, c.Project, thread); err != nil {
		return nil, false, err
	}
	records, more, err := list[Record](ctx, s.Objects, c.Project, kindRun, thread, page)
	if err != nil {
		return nil, false, err
	}
	runs := make([]*Run, len(records))
	for i, r := range records {
		if runs[i], _, err = s.current(ctx, c, r); err != nil {
			return nil, false, err
		}
	}
	return runs, more, nil
}

// UpdateRun changes a run's metadata.
func (s *Service) UpdateRun(ctx context.Context, c berth.Caller, thread, id string, request json.RawMessage) (*Run,
	error) {
	metadata, err := metadataOf(request)
	if err != nil {
		return nil, err
	}
	r, err := update(ctx, s.Objects, c.Project, runKey(thread, id), func(r *Record) error {
		if metadata != nil {
			r.Run.Metadata = metadata
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	run, _, err := s.current(ctx, c, r)
	return run, err
}

// CancelRun cancels an active run. It returns the run in the state cancelling.
func (s *Service) CancelRun(ctx context.Context, c berth.Caller, thread, id string) (*Run, error) {
	run, err := s.Run(ctx, c, thread, id)
	if err != nil {
		return nil, err
	}
	if !run.Status.Active() || run.Status == Cancelling {
		return nil, berth.Errorf(berth.CodeInvalid, "Cannot cancel run with status '%s'.", run.Status)
	}
	ctx = context.WithoutCancel(ctx)
	r, err := update(ctx, s.Objects, c.Project, runKey(thread, id), func(r *Record) error {
		if !r.Ended && r.CancelAt == 0 {
			r.CancelAt = s.Now().Unix()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, _, err := s.current(ctx, c, r); err != nil {
		return nil, err
	}
	cancelling := run.as(Cancelling, run.StartedAt)
	return &cancelling, nil
}

// SubmitToolOutputs continues a run that waits for the outputs of its calls. outputs must
// contain one for each call.
func (s *Service) SubmitToolOutputs(ctx context.Context, c berth.Caller, thread, id string,
	outputs []ToolOutput) (*Record, error) {
	r, err := get[Record](ctx, s.Objects, c.Project, runKey(thread, id))
	if err != nil {
		return nil, err
	}
	run, leg, err := s.current(ctx, c, r)
	if err != nil {
		return nil, err
	}
	if run.Status != RequiresAction {
		return nil, notWaiting(run.Status)
	}
	if err := checkOutputs(run.RequiredAction.SubmitToolOutputs.ToolCalls, outputs); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	n, before := len(r.Legs), *r
	r, err = update(ctx, s.Objects, c.Project, runKey(thread, id), func(r *Record) error {
		switch {
		case r.CancelAt != 0:
			return notWaiting(Cancelled)
		case len(r.Legs) != n: // another request has submitted them first
			return notWaiting(InProgress)
		case r.Ended:
			return notWaiting(r.Run.Status)
		}
		r.next(leg, outputs, s.Now().Unix())
		return nil
	})
	if err != nil {
		return nil, err
	}
	started, err := s.start(ctx, c, r)
	switch {
	case refused(err):
		return s.fail(ctx, c, r, err)
	case later(err):
		return nil, s.withdraw(ctx, c, &before, r, err)
	}
	return started, err
}

// withdraw removes outputs that the engine could not accept now, so that the client can
// submit them again. It returns why.
func (s *Service) withdraw(ctx context.Context, c berth.Caller, before, r *Record, why error) error {
	last := r.last().Response
	_, err := update(ctx, s.Objects, c.Project, runKey(r.Run.ThreadID, r.Run.ID), func(r *Record) error {
		if r.last().Response == last && !r.last().Started && !r.Ended {
			r.Legs, r.Used, r.Saved = before.Legs, before.Used, before.Saved
		}
		return nil
	})
	return errors.Join(why, err)
}

func notWaiting(status Status) error {
	return berth.Errorf(berth.CodeInvalid, "Runs in status %q do not accept tool outputs.", string(status))
}

// checkOutputs requires exactly one output for each call.
func checkOutputs(calls []RequiredCall, outputs []ToolOutput) error {
	want, got := make([]string, len(calls)), make([]string, len(outputs))
	for i, c := range calls {
		want[i] = c.ID
	}
	for i, o := range outputs {
		got[i] = o.ToolCallID
	}
	if slices.Equal(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))) {
		return nil
	}
	return berth.Errorf(berth.CodeInvalid, "Expected tool outputs for call_ids %s, got %s", quoted(want), quoted(got))
}

// quoted lists ids as OpenAI's messages do.
func quoted(ids []string) string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = fmt.Sprintf("'%s'", rule.Clip(id))
	}
	return "[" + strings.Join(all[:min(len(all), 20)], ", ") + "]"
}

// Steps returns the steps of a run, the oldest first. content is whether search results have
// their content.
func (s *Service) Steps(ctx context.Context, c berth.Caller, thread, id string, content bool) ([]Step, error) {
	r, err := get[Record](ctx, s.Objects, c.Project, runKey(thread, id))
	if err != nil {
		return nil, err
	}
	run, _, err := s.current(ctx, c, r)
	if err != nil {
		return nil, err
	}
	legs, err := s.legs(ctx, c.Project, r)
	steps := r.Steps(run, legs)
	if !content {
		for i := range steps {
			steps[i] = steps[i].withoutContent()
		}
	}
	return steps, err
}

// Step returns one step of a run.
func (s *Service) Step(ctx context.Context, c berth.Caller, thread, run, id string, content bool) (*Step, error) {
	steps, err := s.Steps(ctx, c, thread, run, content)
	if err != nil {
		return nil, err
	}
	for i := range steps {
		if steps[i].ID == id {
			return &steps[i], nil
		}
	}
	return nil, notFound("run step", id)
}
