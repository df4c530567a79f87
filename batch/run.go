package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

const (
	poll       = time.Minute     // for jobs that were not signalled
	retryAfter = 5 * time.Second // of a batch whose state could not be read or saved
	maxJobs    = 10_000          // listed at a time
)

// A run is a batch that this process works on. Service.mu guards counts and usage.
type run struct {
	key
	caller  berth.Caller
	cancel  context.CancelCauseFunc // of the batch's requests
	counted bool
	counts  berth.BatchRequestCounts
	usage   berth.Usage
	bytes   int64        // of the results
	done    map[int]bool // lines with a stored result; set before requests run

	waiting map[int]string // by line, why a request waits to run again
	logged  string         // the last reason in the log
	ended   chan struct{}  // receives when a request has a result: one that waits may run
}

// await notes why a request waits.
func (s *Service) await(r *run, line int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.waiting[line] = reason
	if r.logged != reason {
		r.logged = reason
		s.opts.Log.Info("requests of a batch wait to run again", "batch", r.id, "for", reason)
	}
}

// result notes that a request has a result, and lets one that waits run.
func (s *Service) result(r *run, line int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(r.waiting, line)
	select {
	case r.ended <- struct{}{}:
	default:
	}
}

// Run runs batches until ctx ends, including those that an earlier process did not end.
func (s *Service) Run(ctx context.Context) {
	var runs sync.WaitGroup
	defer runs.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		wait := poll
		if err := s.startDue(ctx, &runs); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("failed to list batches; will retry", "err", err)
			wait = retryAfter
		}
		timer.Reset(wait)
	}
}

// startDue starts batches that have a job, at most maxRunning of a project.
func (s *Service) startDue(ctx context.Context, runs *sync.WaitGroup) error {
	// the clock may have been set back
	refs, err := s.opts.Objects.ExpiredObjects(ctx, store.KindBatchJob, s.opts.Now().Add(time.Hour), maxJobs)
	if err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := map[berth.ProjectID]int{}
	for k := range s.running {
		of[k.project]++
	}
	for _, ref := range refs {
		k := key{ref.Project, berth.BatchID(ref.ID)}
		if s.running[k] != nil || of[k.project] >= maxRunning {
			continue
		}
		of[k.project]++
		requests, cancel := context.WithCancelCause(ctx)
		r := &run{key: k, cancel: cancel, waiting: map[int]string{}, ended: make(chan struct{}, 1)}
		s.running[k] = r
		runs.Go(func() {
			defer s.signal()
			defer func() {
				cancel(nil)
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.running, k)
			}()
			if err := s.work(ctx, requests, r); err != nil && ctx.Err() == nil {
				s.opts.Log.Error("failed to run batch; will retry", "batch", k.id, "err", err)
				_ = backoff.Sleep(ctx, retryAfter)
			}
		})
	}
	return nil
}

// work takes a batch to its end. requests is the context of its requests, which ends with a
// cancellation of the batch, and also with ctx.
func (s *Service) work(ctx, requests context.Context, r *run) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rec, err := s.get(ctx, r.key)
		if errors.Is(err, store.ErrNotFound) {
			return s.deleteJob(ctx, r.key)
		}
		if err != nil {
			return err
		}
		r.caller = berth.Caller{Project: r.project, Key: rec.Key}
		switch rec.Batch.Status {
		case berth.BatchValidating:
			err = s.validate(ctx, requests, r.key, rec)
		case berth.BatchInProgress:
			err = s.advance(ctx, requests, r, rec)
		case berth.BatchCancelling:
			err = s.finish(ctx, r, rec, berth.BatchCancelled)
		case berth.BatchFinalizing:
			err = s.finish(ctx, r, rec, rec.Ending)
		default:
			return s.end(ctx, r.key, rec)
		}
		if err != nil {
			return err
		}
	}
}

// validate inspects the input file of a batch and saves the result.
func (s *Service) validate(ctx, requests context.Context, k key, rec *record) error {
	found, err := s.inspect(requests, k, rec)
	switch {
	case requests.Err() != nil:
		return nil // the caller reads the record again
	case isGone(err):
		found = &finding{errors: []berth.BatchError{errInput.report(0)}}
	case err != nil:
		return err
	}
	now := s.opts.Now().Unix()
	_, err = s.update(ctx, k, func(rec *record) error {
		b := &rec.Batch
		switch {
		case b.Status != berth.BatchValidating: // cancelled
		case len(found.errors) > 0:
			b.Status, b.FailedAt, b.Errors = berth.BatchFailed, &now, &berth.BatchErrors{Object: "list",
				Data: found.errors}
		default:
			b.Status, b.InProgressAt, b.RequestCounts.Total = berth.BatchInProgress, &now, found.requests
			if found.model != "" {
				b.Model = &found.model
			}
		}
		return nil
	})
	return err
}

var errInput = &lineError{"invalid_input_file", "input_file_id", "The input file was deleted, has expired or is damaged."}

// isGone reports whether an input file cannot be read, now or later.
func isGone(err error) bool {
	code := berth.ErrorCode(err)
	return code == berth.CodeNotFound || code == berth.CodeCorrupt
}

func (s *Service) inspect(ctx context.Context, k key, rec *record) (*finding, error) {
	in, _, err := s.opts.Files.Open(ctx, k.project, rec.Batch.InputFileID)
	if err != nil {
		return nil, fmt.Errorf("open input file: %w", err)
	}
	defer in.Close()
	return inspect(ctx, in, rec.Batch.Endpoint)
}

// advance runs the requests that have no result, until all have one, the batch is cancelled or
// its time is over.
func (s *Service) advance(ctx, requests context.Context, r *run, rec *record) error {
	if err := s.load(ctx, r); err != nil {
		return err
	}
	left := time.Unix(rec.Batch.ExpiresAt, 0).Sub(s.opts.Now())
	requests, stop := context.WithTimeoutCause(requests, left, errExpired)
	defer stop()
	err := s.requests(ctx, requests, r, rec)
	ending, failure := berth.BatchCompleted, (*berth.BatchErrors)(nil)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(context.Cause(requests), errCancelled):
		return nil // the caller reads the record again
	case errors.Is(context.Cause(requests), errExpired):
		ending = berth.BatchExpired
	case isGone(err):
		ending, failure = berth.BatchFailed, &berth.BatchErrors{Object: "list",
			Data: []berth.BatchError{errInput.report(0)}}
	case err != nil:
		return err
	}
	now := s.opts.Now().Unix()
	_, err = s.update(ctx, r.key, func(rec *record) error {
		if rec.Batch.Status == berth.BatchInProgress {
			rec.Batch.Status, rec.Batch.FinalizingAt, rec.Ending, rec.Batch.Errors = berth.BatchFinalizing, &now,
				ending, failure
		}
		return nil
	})
	return err
}

// requests runs the requests without a result. Its error is the first that stopped it.
func (s *Service) requests(ctx, requests context.Context, r *run, rec *record) error {
	in, _, err := s.opts.Files.Open(ctx, r.project, rec.Batch.InputFileID)
	if err != nil {
		return fmt.Errorf("open input file: %w", err)
	}
	defer in.Close()
	requests, stop := context.WithCancelCause(requests)
	defer stop(nil)
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, s.opts.Concurrency) // bounds the requests in memory, including those that wait
	for lines := newLines(in); ; {
		line, number, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			stop(err)
			return fmt.Errorf("read input file: %w", err)
		}
		if r.done[number] {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-requests.Done():
			return context.Cause(requests)
		}
		held := s.memory.Open(string(r.project))
		release := func() { held.Close(); <-slots }
		if err := held.Reserve(requests, int64(len(line))); err != nil {
			release()
			stop(err)
			return fmt.Errorf("wait for memory for line %d: %w", number, err)
		}
		request, err := parse(line, number, rec.Batch.Endpoint)
		if err != nil {
			release()
			stop(err)
			return fmt.Errorf("parse validated line %d: %w", number, err)
		}
		running.Go(func() {
			defer release()
			if err := s.request(ctx, requests, r, request); err != nil {
				stop(err)
			}
		})
	}
	running.Wait()
	return context.Cause(requests)
}

// request runs a request until it has a result, and saves that. An error means that there is
// no result.
func (s *Service) request(ctx, requests context.Context, r *run, request *Request) error {
	defer s.result(r, request.Line)
	for attempt := 1; ; attempt++ {
		do, release, err := s.acquire(requests, r.project)
		if err != nil {
			return err
		}
		answer := do(requests, r.caller, Execution{Request: request, Once: fmt.Sprintf("%s/%d", r.id, request.Line)})
		release()
		if !answer.ok() {
			if requests.Err() != nil { // it was interrupted
				return context.Cause(requests)
			}
			if wait, again := answer.retry(attempt); again {
				s.await(r, request.Line, answer.reason())
				next := time.NewTimer(wait)
				select {
				case <-next.C:
				case <-r.ended: // what that request used may be free
				case <-requests.Done():
				}
				next.Stop()
				if requests.Err() != nil {
					return context.Cause(requests)
				}
				continue
			}
		}
		return s.save(ctx, r, request, &answer)
	}
}

// acquire waits until the project may run another request, with do.
func (s *Service) acquire(ctx context.Context, p berth.ProjectID) (do Execute, release func(), err error) {
	for {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		pace, err := s.opts.Pace(ctx, p)
		if err != nil {
			return nil, nil, fmt.Errorf("pace of project: %w", err)
		}
		do, freed := s.take(p, pace)
		if do != nil {
			return do, func() { s.free(p) }, nil
		}
		wait := time.NewTimer(max(pace.Wait, time.Second)) // also for limits that were raised
		select {
		case <-freed:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// take takes one of the places for requests. Each project with batches gets an equal share. It
// returns a nil do if there is no place; freed is closed when there may be one.
func (s *Service) take(p berth.ProjectID, pace Pace) (do Execute, freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	projects := map[berth.ProjectID]bool{p: true}
	for k := range s.running {
		projects[k.project] = true
	}
	share := max(1, min(s.opts.Concurrency/len(projects), pace.Requests))
	if pace.Wait > 0 {
		return nil, nil // a free place changes nothing
	}
	if s.all >= s.opts.Concurrency || s.lines[p] >= share {
		return nil, s.freed
	}
	s.lines[p]++
	s.all++
	return s.do, nil
}

func (s *Service) free(p berth.ProjectID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.lines[p]--; s.lines[p] == 0 {
		delete(s.lines, p)
	}
	close(s.freed)
	s.freed = make(chan struct{})
}

// save stores the result of a request. It tries until ctx ends, because the request would
// otherwise run again.
func (s *Service) save(ctx context.Context, r *run, request *Request, answer *Answer) error {
	result := answer.result(request)
	body, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	object := &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindBatchLine, Parent: string(r.id),
		ID: lineID(request.Line)}, CreatedAt: s.opts.Now().Unix(), Body: body}
	delays := backoff.Delays{First: time.Second, Max: time.Minute}
	for {
		err := s.opts.Objects.CreateObjects(ctx, r.project, object)
		if err == nil || errors.Is(err, store.ErrExists) {
			s.mu.Lock()
			defer s.mu.Unlock()
			r.count(result)
			return nil
		}
		if errors.Is(err, store.ErrNotFound) || ctx.Err() != nil { // the batch was deleted with its project
			return fmt.Errorf("save result: %w", err)
		}
		s.opts.Log.Warn("failed to save the result of a batch's request; will retry", "batch", r.id, "line",
			request.Line, "err", err)
		if err := backoff.Sleep(ctx, delays.Next()); err != nil {
			return err
		}
	}
}
