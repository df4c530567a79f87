// Package responses reads stored responses for clients. Package engine creates, cancels and deletes them.
package responses

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// A Store reads responses. It is safe for concurrent use.
type Store struct{ store store.Responses }

// New returns a reader of a store's responses.
func New(st store.Responses) *Store { return &Store{st} }

// A Record is a response with its request.
type Record struct {
	Body    *berth.Response
	Request *berth.ResponseRequest // without Input
	Input   []berth.Item           // the request's own input, each item with an id
}

// clientError returns the client's error for a response that does not exist.
func clientError(id berth.ResponseID, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Response", rule.Clip(string(id)))
	}
	return err
}

// Get returns a response. A response with store: false is visible only to the request that created it, unless it runs
// in the background.
func (s *Store) Get(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*Record, error) {
	rec, err := s.store.GetResponse(ctx, p, id)
	if err == nil && !rec.Body.Visible() {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, clientError(id, err)
	}
	return &Record{rec.Body, rec.Request, rec.Input}, nil
}

// Request returns the request of a response that is stored. It returns berth.ErrNotFound if there is none.
func (s *Store) Request(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*berth.ResponseRequest, error) {
	rec, err := s.store.GetResponse(ctx, p, id)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	if !rec.Body.Store {
		return nil, berth.ErrNotFound
	}
	return rec.Request, nil
}

// Check returns an error unless a client may see a response.
func (s *Store) Check(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	state, err := s.store.ResponseState(ctx, p, id)
	if err == nil && !state.Stored {
		_, err = s.Get(ctx, p, id)
	}
	return clientError(id, err)
}

// Read returns the JSON of a response in consecutive pieces.
func (s *Store) Read(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (pieces [][]byte, err error) {
	pieces, err = s.store.ReadResponse(ctx, p, id)
	return pieces, clientError(id, err)
}

// A Summary is a response in a list, with the key that created it.
type Summary = store.Listed

// A Query selects responses. What is empty selects all.
type Query struct {
	Status berth.Status
	Model  string
	Key    berth.KeyID // that created them
	Words  string      // in the texts of the response and its request
	Tool   string      // that the response has called, as berth.Item.Tool names it
	Page   berth.Page
}

// List returns summaries of stored responses, and the id after which the next page follows, if any. With Words or
// Tool, a page has those of its responses that contain them.
func (s *Store) List(ctx context.Context, p berth.ProjectID, q Query) (list []*Summary, next berth.ResponseID,
	err error) {
	list, next, err = s.store.ListResponses(ctx, p, store.ResponseQuery{Status: q.Status, Model: q.Model, Key: q.Key,
		After: berth.ResponseID(q.Page.After), Ascending: q.Page.Ascending, Limit: q.Page.Limit})
	if err == nil && (q.Words != "" || q.Tool != "") {
		list, err = s.matching(ctx, p, list, q)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list responses: %w", err)
	}
	return list, next, nil
}
