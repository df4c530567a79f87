package batch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/store"
)

// EndpointMessages is the path of the requests of a batch of messages.
const EndpointMessages = "/v1/messages"

// Messages are the batches of Anthropic's Messages API. Their requests come with the batch instead of a file, may be
// for several models, and have one list of results. They are batches like others in all else.
type Messages struct{ service *Service }

// Messages returns the batches of messages of a service.
func (s *Service) Messages() *Messages { return &Messages{s} }

// A MessageRequest is a request of a batch of messages.
type MessageRequest struct {
	CustomID string          `json:"custom_id"`
	Params   json.RawMessage `json:"params"`
}

// A MessageBatch is a batch of messages.
type MessageBatch struct {
	berth.Batch
	Left int // requests without a result at the end; RequestCounts.Failed includes them
}

// Create creates a batch. Its files, which hold the requests and the results, expire after some seconds.
func (m *Messages) Create(ctx context.Context, c berth.Caller, requests []MessageRequest,
	life int64) (*MessageBatch, error) {
	s := m.service
	if err := s.room(ctx, c.Project); err != nil {
		return nil, err
	}
	r := s.newRecord(c, CreateRequest{Endpoint: EndpointMessages, ExpiresAfterSeconds: life}, berth.PrefixMessageBatch)
	in, out := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		out.CloseWithError(writeRequests(out, requests))
	}()
	input, err := s.opts.Files.Create(ctx, c.Project, files.CreateRequest{Filename: string(r.Batch.ID) + "_input.jsonl",
		Purpose: files.PurposeBatch, ExpiresAfterSeconds: life}, in)
	in.CloseWithError(io.ErrClosedPipe) // ends the goroutine after an error
	<-written
	if err != nil {
		return nil, fmt.Errorf("store requests of batch: %w", err)
	}
	r.Batch.InputFileID, r.Batch.RequestCounts.Total = input.ID, len(requests)
	if err := s.add(ctx, c.Project, r); err != nil {
		return nil, errors.Join(err, s.opts.Files.Delete(context.WithoutCancel(ctx), c.Project, input.ID))
	}
	return &MessageBatch{Batch: r.Batch}, nil
}

// writeRequests writes the lines of an input file.
func writeRequests(w io.Writer, requests []MessageRequest) error {
	buffer := bufio.NewWriterSize(w, 64<<10)
	e := json.NewEncoder(buffer)
	e.SetEscapeHTML(false)
	for _, r := range requests {
		if err := e.Encode(struct {
			CustomID string          `json:"custom_id"`
			Method   string          `json:"method"`
			URL      string          `json:"url"`
			Body     json.RawMessage `json:"body"`
		}{r.CustomID, "POST", EndpointMessages, r.Params}); err != nil {
			return fmt.Errorf("write request: %w", err)
		}
	}
	return buffer.Flush()
}

// record returns the record of a batch of messages.
func (m *Messages) record(ctx context.Context, k key) (*record, error) {
	r, err := m.service.get(ctx, k)
	if errors.Is(err, store.ErrNotFound) || err == nil && r.Batch.Endpoint != EndpointMessages {
		return nil, notFound(k.id)
	}
	return r, err
}

func (m *Messages) current(k key, r *record) *MessageBatch {
	return &MessageBatch{Batch: *m.service.current(k, r), Left: r.Left}
}

// Get returns a batch.
func (m *Messages) Get(ctx context.Context, p berth.ProjectID, id berth.BatchID) (*MessageBatch, error) {
	k := key{p, id}
	r, err := m.record(ctx, k)
	if err != nil {
		return nil, err
	}
	return m.current(k, r), nil
}

// List returns one page of batches and whether there are more. If the project has no batch page.After, it returns
// store.ErrNotFound.
func (m *Messages) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*MessageBatch, bool, error) {
	var found []*MessageBatch
	most := page.Limit
	for page.Limit = 100; ; {
		objects, more, err := m.service.opts.Objects.ListObjects(ctx, p, store.KindBatch, "", page)
		if err != nil {
			return nil, false, err
		}
		for _, o := range objects {
			r, err := decode(o)
			if err != nil {
				return nil, false, err
			}
			if r.Batch.Endpoint != EndpointMessages {
				continue
			}
			if len(found) == most {
				return found, true, nil
			}
			found = append(found, m.current(key{p, r.Batch.ID}, r))
		}
		if !more || len(objects) == 0 {
			return found, false, nil
		}
		page.After = objects[len(objects)-1].ID
	}
}

// Cancel cancels a batch.
func (m *Messages) Cancel(ctx context.Context, p berth.ProjectID, id berth.BatchID) (*MessageBatch, error) {
	if _, err := m.record(ctx, key{p, id}); err != nil {
		return nil, err
	}
	b, err := m.service.Cancel(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return &MessageBatch{Batch: *b}, nil
}

// Ended reports whether a status is the last one of a batch.
func Ended(s berth.BatchStatus) bool {
	switch s {
	case berth.BatchCompleted, berth.BatchFailed, berth.BatchExpired, berth.BatchCancelled:
		return true
	}
	return false
}

// Delete deletes a batch that has ended, with its files.
func (m *Messages) Delete(ctx context.Context, p berth.ProjectID, id berth.BatchID) error {
	k := key{p, id}
	r, err := m.record(ctx, k)
	if err != nil {
		return err
	}
	if !Ended(r.Batch.Status) {
		return berth.Errorf(berth.CodeInvalid, "Batch %s cannot be deleted before it has ended. Cancel it first.", id)
	}
	for _, file := range []berth.FileID{r.Batch.InputFileID, r.OutputID, r.ErrorID} {
		if err := m.service.opts.Files.Delete(ctx, p, file); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return fmt.Errorf("delete file of batch: %w", err)
		}
	}
	if err := m.service.clean(ctx, k); err != nil {
		return err
	}
	if err := m.service.opts.Objects.DeleteObject(ctx, p, k.object()); errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	} else if err != nil {
		return fmt.Errorf("delete batch: %w", err)
	}
	return nil
}

// A MessageResult is the result of a request of a batch.
type MessageResult struct {
	CustomID string
	Status   int             // of HTTP; 0 for a request without an answer
	Body     json.RawMessage // of the answer
}

// Results yields the results of a batch that has ended. A batch whose files have expired has none.
func (m *Messages) Results(ctx context.Context, p berth.ProjectID, b *MessageBatch) iter.Seq2[MessageResult, error] {
	return func(yield func(MessageResult, error) bool) {
		for _, id := range []*berth.FileID{b.OutputFileID, b.ErrorFileID} {
			if id == nil {
				continue
			}
			for r, err := range m.read(ctx, p, *id) {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// read yields the results in a file.
func (m *Messages) read(ctx context.Context, p berth.ProjectID, id berth.FileID) iter.Seq2[MessageResult, error] {
	return func(yield func(MessageResult, error) bool) {
		content, _, err := m.service.opts.Files.Open(ctx, p, id)
		if isGone(err) {
			return
		}
		if err != nil {
			yield(MessageResult{}, fmt.Errorf("open results: %w", err))
			return
		}
		defer content.Close()
		for in := json.NewDecoder(bufio.NewReader(content)); ; {
			var line output
			if err := in.Decode(&line); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				yield(MessageResult{}, fmt.Errorf("read results: %w", err))
				return
			}
			r := MessageResult{CustomID: line.CustomID}
			if line.Response != nil {
				r.Status, r.Body = line.Response.StatusCode, line.Response.Body
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}
