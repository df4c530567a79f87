package store

import (
	"context"
	"errors"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
)

// MaxRead is the most responses that one call of ListResponses reads. A response is sealed, so
// those that a query does not select have to be read, too.
const MaxRead = 1000

// A ResponseQuery selects responses. An empty field selects all.
type ResponseQuery struct {
	Status    berth.Status
	Model     string
	Key       berth.KeyID // that created them
	After     berth.ResponseID
	Ascending bool // the oldest first
	Limit     int
}

// Selects reports whether a response has the query's status and model.
func (q ResponseQuery) Selects(r *berth.Response) bool {
	return (q.Status == "" || q.Status == r.Status) && (q.Model == "" || q.Model == r.Model)
}

// Summary returns what a list shows of a response. It has a bounded size.
func Summary(r *berth.Response) *berth.Response {
	return &berth.Response{ID: r.ID, Object: r.Object, CreatedAt: r.CreatedAt, CompletedAt: r.CompletedAt,
		Status: r.Status, Background: r.Background, Model: r.Model,
		Conversation: r.Conversation, PreviousResponseID: r.PreviousResponseID, Error: r.Error,
		IncompleteDetails: r.IncompleteDetails,
		Usage:             r.Usage, Metadata: r.Metadata, Berth: r.Berth}
}

// A Listed is a response in a list, which has what Summary returns.
type Listed struct {
	*berth.Response
	Key berth.KeyID // the API key of its request; empty without keys
}

// Open reports whether the query selects only responses in progress, or only those that have
// ended. It returns nil if it selects both.
func (q ResponseQuery) Open() *bool {
	if q.Status == "" {
		return nil
	}
	open := !q.Status.Final()
	return &open
}

// A FoundResponse is the id of a stored response, its key, and the size of its body without the output.
type FoundResponse struct {
	ID    string
	Key   berth.KeyID
	Bytes int64
}

// List implements ListResponses above two functions of a database. find returns at most n
// responses after q.After, in the query's order, which need not have its model and status. read
// returns the body of one, or ErrNotFound if it has been deleted.
func (q ResponseQuery) List(ctx context.Context, find func(q ResponseQuery, n int64) ([]FoundResponse, error),
	read func(id string) (*berth.Response, error)) (list []*Listed, next berth.ResponseID, err error) {
	const batch = 100
	for n := 0; ; {
		found, err := find(q, batch)
		if err != nil {
			return nil, "", err
		}
		for _, f := range found {
			if len(list) == q.Limit || n == MaxRead {
				return list, q.After, nil
			}
			if q.Key == "" || q.Key == f.Key {
				r, err := f.read(ctx, read)
				if err != nil {
					return nil, "", err
				}
				if r != nil && q.Selects(r) {
					list = append(list, &Listed{r, f.Key})
				}
			}
			q.After = berth.ResponseID(f.ID)
			n++
		}
		if len(found) < batch {
			return list, "", nil
		}
	}
}

// read returns the summary of a response, or nil if it has been deleted. The memory to read
// it is reserved until it returns.
func (f FoundResponse) read(ctx context.Context, read func(id string) (*berth.Response, error)) (*berth.Response,
	error) {
	if err := Reserve(ctx, f.Bytes); err != nil {
		return nil, err
	}
	defer ration.From(ctx).Return(readFactor * f.Bytes)
	r, err := read(f.ID)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return Summary(r), nil
}
