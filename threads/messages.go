package threads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func messageKey(thread, id string) store.ObjectKey {
	return store.ObjectKey{Kind: kindMessage, Parent: thread, ID: id}
}

// newMessages returns the messages of requests and the objects to save. at is the field
// that contains the requests, "" for the body itself.
func (s *Service) newMessages(ctx context.Context, p berth.ProjectID, thread string, reqs []MessageRequest,
	at string) ([]*Message, []*store.Object, error) {
	var messages []*Message
	var objects []*store.Object
	for i := range reqs {
		where := ""
		if at != "" {
			where = fmt.Sprintf("%s[%d].", at, i)
		}
		if err := s.resources.checkFiles(ctx, p, &reqs[i], where); err != nil {
			return nil, nil, err
		}
		m := newMessage(thread, &reqs[i], s.Now().Unix())
		o, err := objectOf(kindMessage, thread, m.ID, m.CreatedAt, m)
		if err != nil {
			return nil, nil, err
		}
		messages, objects = append(messages, m), append(objects, o)
	}
	return messages, objects, nil
}

// CreateMessage adds a message to a thread. It returns an error if the thread has an active
// run.
func (s *Service) CreateMessage(ctx context.Context, c berth.Caller, thread string, req *MessageRequest) (*Message,
	error) {
	t, err := s.Thread(ctx, c.Project, thread)
	if err != nil {
		return nil, err
	}
	messages, objects, err := s.newMessages(ctx, c.Project, thread, []MessageRequest{*req}, "")
	if err != nil {
		return nil, err
	}
	_, run, err := s.latest(ctx, c, thread)
	if err != nil {
		return nil, err
	}
	if run != nil && run.Status.Active() {
		return nil, berth.Errorf(berth.CodeInvalid, "Can't add messages to %s while a run %s is active.", thread,
			run.ID)
	}
	var made newStores
	defer func() { s.resources.discardOf(ctx, c.Project, thread, made, err) }()
	if err = s.resources.attachTo(ctx, c.Project, t, []MessageRequest{*req}, &made); err != nil {
		return nil, err
	}
	if err = s.Objects.CreateObjects(ctx, c.Project, objects...); errors.Is(err, store.ErrNotFound) {
		err = notFound("thread", thread)
	}
	if err != nil {
		return nil, err
	}
	return messages[0], nil
}

// Message returns a message.
func (s *Service) Message(ctx context.Context, c berth.Caller, thread, id string) (*Message, error) {
	if err := s.upToDate(ctx, c, thread); err != nil {
		return nil, err
	}
	return get[Message](ctx, s.Objects, c.Project, messageKey(thread, id))
}

// Messages returns one page of a thread's messages and whether there are more. If run is not
// empty, it returns only the messages of that run.
func (s *Service) Messages(ctx context.Context, c berth.Caller, thread, run string, page store.Page) ([]*Message, bool,
	error) {
	if err := s.upToDate(ctx, c, thread); err != nil {
		return nil, false, err
	}
	if run == "" {
		return list[Message](ctx, s.Objects, c.Project, kindMessage, thread, page)
	}
	return s.messagesOf(ctx, c.Project, thread, run, page)
}

// messagesOf is Messages for one run. It filters the thread's messages.
func (s *Service) messagesOf(ctx context.Context, p berth.ProjectID, thread, run string, page store.Page) ([]*Message,
	bool, error) {
	limit := page.Limit
	page.Limit = 1000
	backwards := page.After == "" && page.Before != ""
	var out []*Message
	for {
		all, more, err := list[Message](ctx, s.Objects, p, kindMessage, thread, page)
		if err != nil {
			return nil, false, err
		}
		found := slices.DeleteFunc(slices.Clone(all), func(m *Message) bool {
			return m.RunID == nil || *m.RunID != run
		})
		if backwards {
			out = append(found, out...)
		} else {
			out = append(out, found...)
		}
		switch {
		case len(out) > limit && backwards:
			return out[len(out)-limit:], true, nil
		case len(out) > limit:
			return out[:limit], true, nil
		case !more:
			return out, false, nil
		case backwards:
			page.Before = all[0].ID
		default:
			page.After = all[len(all)-1].ID
		}
	}
}

// UpdateMessage changes a message's metadata.
func (s *Service) UpdateMessage(ctx context.Context, c berth.Caller, thread, id string,
	request json.RawMessage) (*Message, error) {
	metadata, err := metadataOf(request)
	if err != nil {
		return nil, err
	}
	if err := s.upToDate(ctx, c, thread); err != nil {
		return nil, err
	}
	return update(ctx, s.Objects, c.Project, messageKey(thread, id), func(m *Message) error {
		if metadata != nil {
			m.Metadata = metadata
		}
		return nil
	})
}

// DeleteMessage removes a message. Later runs do not get it.
func (s *Service) DeleteMessage(ctx context.Context, c berth.Caller, thread, id string) error {
	if err := s.upToDate(ctx, c, thread); err != nil {
		return err
	}
	return remove(ctx, s.Objects, c.Project, messageKey(thread, id))
}
