package threads

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-run/berth/internal/rule"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Thread is a list of messages on which assistants run.
type Thread struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"` // "thread"
	CreatedAt     int64             `json:"created_at"`
	Metadata      map[string]string `json:"metadata"`
	ToolResources Resources         `json:"tool_resources"`
}

func (t *Thread) complete() {
	t.Object = string(kindThread)
	t.Metadata = orEmptyMap(t.Metadata)
	t.ToolResources.complete()
}

// A ThreadRequest is a request for a new thread.
type ThreadRequest struct {
	Messages      []MessageRequest  `json:"messages"`
	ToolResources Resources         `json:"tool_resources"`
	Metadata      map[string]string `json:"metadata"`
}

func threadKey(id string) store.ObjectKey { return store.ObjectKey{Kind: kindThread, ID: id} }

// CreateThread stores a new thread with its first messages.
func (s *Service) CreateThread(ctx context.Context, p berth.ProjectID, req *ThreadRequest) (t *Thread, err error) {
	var made newStores
	defer func() { s.resources.discard(ctx, p, made, err) }()
	t, objects, err := s.newThread(ctx, p, req, "", &made)
	if err != nil {
		return nil, err
	}
	return t, s.Objects.CreateObjects(ctx, p, objects...)
}

// newThread returns a thread and the objects to save. at is the field of the request with
// the thread, "" for the body itself. Vector stores that newThread creates are appended to
// made.
func (s *Service) newThread(ctx context.Context, p berth.ProjectID, req *ThreadRequest, at string,
	made *newStores) (*Thread, []*store.Object, error) {
	t := &Thread{ID: berth.NewID(prefixThread), CreatedAt: s.Now().Unix(), Metadata: req.Metadata,
		ToolResources: req.ToolResources}
	t.complete()
	_, more, err := s.newMessages(ctx, p, t.ID, req.Messages, rule.Join(at, "messages"))
	if err != nil {
		return nil, nil, err
	}
	if err := s.resources.resolve(ctx, p, &t.ToolResources, rule.Join(at, "tool_resources"), made); err != nil {
		return nil, nil, err
	}
	if t.ToolResources, err = s.resources.attach(ctx, p, t.ToolResources, req.Messages, made); err != nil {
		return nil, nil, err
	}
	o, err := objectOf(kindThread, "", t.ID, t.CreatedAt, t)
	return t, append([]*store.Object{o}, more...), err
}

// Thread returns a thread.
func (s *Service) Thread(ctx context.Context, p berth.ProjectID, id string) (*Thread, error) {
	return get[Thread](ctx, s.Objects, p, threadKey(id))
}

// Threads returns a page of the threads of a project, and whether there are more.
func (s *Service) Threads(ctx context.Context, p berth.ProjectID, page store.Page) ([]*Thread, bool, error) {
	return list[Thread](ctx, s.Objects, p, kindThread, "", page)
}

// UpdateThread sets the fields of a request.
func (s *Service) UpdateThread(ctx context.Context, p berth.ProjectID, id string, request json.RawMessage) (*Thread,
	error) {
	var resources ThreadRequest
	if err := json.Unmarshal(request, &resources); err != nil {
		return nil, fmt.Errorf("decode thread: %w", err)
	}
	if err := s.resources.resolve(ctx, p, &resources.ToolResources, "tool_resources", nil); err != nil {
		return nil, err
	}
	return update(ctx, s.Objects, p, threadKey(id), func(t *Thread) error {
		changed, err := patched(t, request, "metadata")
		if err != nil {
			return err
		}
		*t = *changed
		t.complete()
		return nil
	})
}

// DeleteThread stops the thread's active run and removes the thread with its messages, its
// runs and their responses.
func (s *Service) DeleteThread(ctx context.Context, c berth.Caller, id string) error {
	if _, err := s.Thread(ctx, c.Project, id); err != nil {
		return err
	}
	page := store.Page{Limit: 100, Ascending: true}
	for {
		runs, more, err := list[Record](ctx, s.Objects, c.Project, kindRun, id, page)
		if err != nil {
			return err
		}
		for _, r := range runs {
			for _, leg := range slices.Backward(r.Legs) {
				if err := s.Engine.Delete(ctx, c, leg.Response); err != nil &&
					berth.ErrorCode(err) != berth.CodeNotFound {
					return err
				}
			}
			page.After = r.Run.ID
		}
		if !more {
			return remove(ctx, s.Objects, c.Project, threadKey(id))
		}
	}
}
