// Package batch runs batches: files of requests, one a line.
//
// A batch is an object of the store, as are the results of its requests while it runs. A request
// is executed until its result is stored, and never after that, so a batch survives the death of
// the process at any point. When all requests have a result, the results are written to files and
// deleted. A job, another object, exists from the creation of a batch to that deletion.
package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/store"
)

// Limits of batches, as at OpenAI, except those of lines and of batches in a project.
const (
	DefaultConcurrency = 8
	Window             = 24 * time.Hour
	MaxRequests        = 50_000
	MaxLine            = 16 << 20    // bytes
	maxBodies          = 2 * MaxLine // bytes of all lines that run concurrently; one project may use half
	maxID              = 512         // bytes of a custom_id
	maxErrors          = 100         // reported of one file
	maxUnended         = 1000        // batches of a project
	maxRunning         = 4           // batches of a project at a time; others wait
)

// Endpoints are the paths that the requests of a batch may have, beside that of Messages.
var Endpoints = []string{"/v1/responses", "/v1/chat/completions", "/v1/embeddings", "/v1/moderations"}

// Files stores the input and the output of batches; *files.Service implements it.
type Files interface {
	Create(ctx context.Context, p berth.ProjectID, req files.CreateRequest, r io.Reader) (*berth.File, error)
	Get(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error)
	Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error)
	Delete(ctx context.Context, p berth.ProjectID, id berth.FileID) error
}

// A Pace bounds what a project's batches do now, so that they leave it room for other requests.
type Pace struct {
	Requests int           // that may run concurrently
	Wait     time.Duration // before the next request
}

// Options are a Service's parts. Those without a default are required.
type Options struct {
	Objects     store.Objects
	Files       Files
	Concurrency int // requests of all batches at a time; default DefaultConcurrency

	// Pace returns the pace of a project. An error means that the project may not run
	// anything now. Nil means no bound.
	Pace func(ctx context.Context, p berth.ProjectID) (Pace, error)

	// Ended is called with the last state of each batch, before the batch's job is deleted. It
	// is called again after an error, and after a crash. It may be nil.
	Ended func(ctx context.Context, p berth.ProjectID, b *berth.Batch) error

	Log *slog.Logger     // default slog.Default
	Now func() time.Time // default time.Now
}

// A Service runs batches. It is safe for concurrent use. Its errors for clients are *berth.Error.
type Service struct {
	opts   Options
	wake   chan struct{}
	memory *ration.Pool // for lines that run: an answer and its making take many times their size

	mu      sync.Mutex
	do      Execute
	running map[key]*run
	lines   map[berth.ProjectID]int // requests that run
	all     int                     // the sum of lines
	freed   chan struct{}           // closed when a request has ended
}

type key struct {
	project berth.ProjectID
	id      berth.BatchID
}

// New returns a service. Handle and Run make it run batches.
func New(opts Options) *Service {
	opts.Concurrency = cmp.Or(opts.Concurrency, DefaultConcurrency)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Pace == nil {
		opts.Pace = func(context.Context, berth.ProjectID) (Pace, error) {
			return Pace{Requests: opts.Concurrency}, nil
		}
	}
	memory := ration.New(ration.Options{Total: maxBodies, Wait: Window, Waiting: math.MaxInt})
	return &Service{opts: opts, wake: make(chan struct{}, 1), memory: memory, running: map[key]*run{},
		lines: map[berth.ProjectID]int{}, freed: make(chan struct{})}
}

// Handle sets the function that executes requests. It must be called before Run.
func (s *Service) Handle(do Execute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.do = do
}

// A record is the body of an object of store.KindBatch.
type record struct {
	Batch    berth.Batch       `json:"batch"`
	Key      berth.KeyID       `json:"key,omitempty"`    // the API key of its request
	Expiry   int64             `json:"expiry,omitempty"` // of its output, in seconds after its creation
	OutputID berth.FileID      `json:"output_id"`        // chosen immediately, so that each file is made once
	ErrorID  berth.FileID      `json:"error_id"`         // likewise
	Ending   berth.BatchStatus `json:"ending,omitempty"` // of a batch that is finalizing: its last status
	Left     int               `json:"left,omitempty"`   // requests without a result at the end
}

func (k key) object() store.ObjectKey {
	return store.ObjectKey{Kind: store.KindBatch, ID: string(k.id)}
}

func (k key) job() store.ObjectKey {
	return store.ObjectKey{Kind: store.KindBatchJob, ID: string(k.id)}
}

// A CreateRequest describes a batch.
type CreateRequest struct {
	Endpoint            string // one of Endpoints
	InputFileID         berth.FileID
	Metadata            map[string]string
	ExpiresAfterSeconds int64 // of its output; 0 means never
}

// Create creates a batch, which is then validated and run in the background.
func (s *Service) Create(ctx context.Context, c berth.Caller, req CreateRequest) (*berth.Batch, error) {
	input, err := s.opts.Files.Get(ctx, c.Project, req.InputFileID)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil, berth.Invalid("input_file_id", "No such File object: %s", req.InputFileID)
	}
	if err != nil {
		return nil, fmt.Errorf("find input of batch: %w", err)
	}
	if input.Purpose != files.PurposeBatch {
		return nil, berth.Invalid("input_file_id",
			"Invalid 'input_file_id': file %s has the purpose '%s'. Upload the file with the purpose '%s'.", input.ID,
			input.Purpose, files.PurposeBatch)
	}
	if err := s.room(ctx, c.Project); err != nil {
		return nil, err
	}
	r := s.newRecord(c, req, berth.PrefixBatch)
	if err := s.add(ctx, c.Project, r); err != nil {
		return nil, err
	}
	return &r.Batch, nil
}

// room refuses another batch of a project that has too many.
func (s *Service) room(ctx context.Context, p berth.ProjectID) error {
	if _, more, err := s.opts.Objects.ListObjects(ctx, p, store.KindBatchJob, "",
		store.Page{Limit: maxUnended}); err != nil {
		return fmt.Errorf("count batches: %w", err)
	} else if more {
		return &berth.Error{Code: berth.CodeRateLimited, Wire: "rate_limit_exceeded", Type: "requests",
			RetryAfter: -1,
			Message: fmt.Sprintf(
				"The project has more than %d batches that have not ended. Wait for some of them, or cancel them.",
				maxUnended)}
	}
	return nil
}

func (s *Service) newRecord(c berth.Caller, req CreateRequest, prefix string) *record {
	now := s.opts.Now()
	return &record{Key: c.Key, Expiry: req.ExpiresAfterSeconds, OutputID: berth.FileID(berth.NewID(berth.PrefixFile)),
		ErrorID: berth.FileID(berth.NewID(berth.PrefixFile)),
		Batch: berth.Batch{ID: berth.BatchID(berth.NewID(prefix)), Object: "batch", Endpoint: req.Endpoint,
			InputFileID:      req.InputFileID,
			CompletionWindow: "24h", Status: berth.BatchValidating, CreatedAt: now.Unix(),
			ExpiresAt: now.Add(Window).Unix(), Metadata: req.Metadata}}
}

// add saves a new batch, which Run then finds.
func (s *Service) add(ctx context.Context, p berth.ProjectID, r *record) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode batch: %w", err)
	}
	k, at := key{p, r.Batch.ID}, r.Batch.CreatedAt
	err = s.opts.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: k.object(), CreatedAt: at, Body: body},
		// the expiry lists it at a start
		&store.Object{ObjectKey: k.job(), CreatedAt: at, ExpiresAt: at, Body: []byte("{}")})
	if err != nil {
		return fmt.Errorf("save batch: %w", err)
	}
	s.signal()
	return nil
}

// signal makes Run look for jobs.
func (s *Service) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// get returns the stored record of a batch, or store.ErrNotFound.
func (s *Service) get(ctx context.Context, k key) (*record, error) {
	o, err := s.opts.Objects.GetObject(ctx, k.project, k.object())
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	return decode(o)
}

func decode(o *store.Object) (*record, error) {
	r := new(record)
	if err := json.Unmarshal(o.Body, r); err != nil {
		return nil, fmt.Errorf("decode batch: %w", err)
	}
	return r, nil
}

// update changes the record of a batch. It returns store.ErrNotFound if there is none.
func (s *Service) update(ctx context.Context, k key, change func(*record) error) (*record, error) {
	var r *record
	_, err := s.opts.Objects.UpdateObject(ctx, k.project, k.object(), func(o *store.Object) (err error) {
		if r, err = decode(o); err != nil {
			return err
		}
		if err = change(r); err != nil {
			return err
		}
		o.Body, err = json.Marshal(r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("update batch: %w", err)
	}
	return r, nil
}

func notFound(id berth.BatchID) error {
	return &berth.Error{Code: berth.CodeNotFound, Param: "batch_id",
		Message: fmt.Sprintf("No batch found with id '%s'.", id)}
}

// Get returns a batch.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.BatchID) (*berth.Batch, error) {
	k := key{p, id}
	r, err := s.get(ctx, k)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	return s.current(k, r), nil
}

// current returns the batch of a record, with its present counts while it runs.
func (s *Service) current(k key, r *record) *berth.Batch {
	b := &r.Batch
	s.mu.Lock()
	defer s.mu.Unlock()
	if run := s.running[k]; run != nil && run.counted && (b.Status == berth.BatchInProgress ||
		b.Status == berth.BatchCancelling || b.Status == berth.BatchFinalizing) {
		b.RequestCounts.Completed, b.RequestCounts.Failed = run.counts.Completed, run.counts.Failed
		usage := run.usage
		b.Usage = &usage
		if len(run.waiting) > 0 && b.Status == berth.BatchInProgress {
			first := slices.Min(slices.Collect(maps.Keys(run.waiting)))
			b.Berth = &berth.BatchBerth{WaitingFor: run.waiting[first]}
		}
	}
	return b
}

// List returns one page of batches and whether there are more. If the project has no batch
// page.After, it returns store.ErrNotFound.
func (s *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.Batch, bool, error) {
	objects, more, err := s.opts.Objects.ListObjects(ctx, p, store.KindBatch, "", page)
	if err != nil {
		return nil, false, err
	}
	list := make([]*berth.Batch, len(objects))
	for i, o := range objects {
		r, err := decode(o)
		if err != nil {
			return nil, false, err
		}
		list[i] = s.current(key{p, r.Batch.ID}, r)
	}
	return list, more, nil
}

// Cancel cancels a batch. Its requests in progress are interrupted.
func (s *Service) Cancel(ctx context.Context, p berth.ProjectID, id berth.BatchID) (*berth.Batch, error) {
	k := key{p, id}
	now := s.opts.Now().Unix()
	r, err := s.update(ctx, k, func(r *record) error {
		switch r.Batch.Status {
		case berth.BatchValidating, berth.BatchInProgress:
			r.Batch.Status, r.Batch.CancellingAt = berth.BatchCancelling, &now
		case berth.BatchCancelling, berth.BatchCancelled:
		default:
			return &berth.Error{Code: berth.CodeInvalid, Param: "batch_id",
				Message: fmt.Sprintf("Cannot cancel a batch with status '%s'.", r.Batch.Status)}
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if run := s.running[k]; run != nil {
		run.cancel(errCancelled)
	}
	s.mu.Unlock()
	return s.current(k, r), nil
}

var (
	errCancelled = errors.New("the batch was cancelled")
	errExpired   = errors.New("the batch has expired")
)
