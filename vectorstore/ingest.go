package vectorstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const (
	segmentBytes = 64 << 10        // of text in one object, about
	retryAfter   = 5 * time.Second // of a failed job, times the attempts
	maxAttempts  = 3               // also counts those that ended with the process
	poll         = time.Minute     // for jobs that were not signalled
	maxListed    = 10_000          // jobs, among which projects take turns
	batch        = 4               // jobs until the next list
)

// A jobKey names a file that is to be read.
type jobKey struct {
	project berth.ProjectID
	store   berth.VectorStoreID
	file    berth.FileID
}

func (k jobKey) object() store.ObjectKey {
	return store.ObjectKey{Kind: store.KindVectorJob, Parent: string(k.store), ID: string(k.file)}
}

// A job counts the attempts to read a file.
type job struct {
	Attempts int `json:"attempts"`
}

// signal wakes the worker.
func (s *Service) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// stop ends the work on matching files.
func (s *Service) stop(match func(jobKey) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, cancel := range s.running {
		if match(k) {
			cancel()
		}
	}
}

// Run reads the files that were added, one after the other, until ctx ends. Files that an
// earlier process did not finish are read again.
func (s *Service) Run(ctx context.Context) {
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
		if err := s.ReadAll(ctx); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("failed to read files of vector stores; will retry", "err", err)
			wait = retryAfter
		}
		timer.Reset(wait)
	}
}

// ReadAll reads the files that were added by now.
func (s *Service) ReadAll(ctx context.Context) error {
	for {
		refs, err := s.opts.Objects.ExpiredObjects(ctx, store.KindVectorJob, s.opts.Now(), maxListed)
		if err != nil {
			return fmt.Errorf("list files to read: %w", err)
		}
		for _, r := range inTurn(refs, batch) {
			if err := s.work(ctx, jobKey{r.Project, berth.VectorStoreID(r.Parent), berth.FileID(r.ID)}); err != nil {
				return err
			}
		}
		if len(refs) == 0 {
			return nil
		}
	}
}

// inTurn returns the first n jobs when projects take turns, so that the many files of one do
// not delay the others'.
func inTurn(refs []store.ObjectRef, n int) []store.ObjectRef {
	turns := make([]int, len(refs))
	of := map[berth.ProjectID]int{}
	order := make([]int, len(refs))
	for i, r := range refs {
		order[i], turns[i] = i, of[r.Project]
		of[r.Project]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return turns[a] - turns[b] })
	next := make([]store.ObjectRef, 0, n)
	for _, i := range order[:min(n, len(order))] {
		next = append(next, refs[i])
	}
	return next
}

// work does one job and deletes it. It returns an error if the store fails.
func (s *Service) work(ctx context.Context, k jobKey) error {
	var j job
	_, err := s.opts.Objects.UpdateObject(ctx, k.project, k.object(), func(o *store.Object) error {
		if err := json.Unmarshal(o.Body, &j); err != nil {
			return fmt.Errorf("decode job: %w", err)
		}
		j.Attempts++
		o.ExpiresAt = s.opts.Now().Add(time.Duration(j.Attempts) * retryAfter).Unix()
		body, err := json.Marshal(j)
		o.Body = body
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("start job: %w", err)
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.running[k] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.running, k)
		s.mu.Unlock()
	}()
	err = s.ingest(running, k)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case running.Err() != nil, errors.Is(err, store.ErrNotFound), err == nil:
	case errors.Is(err, errUnembedded):
		return s.postpone(ctx, k, j)
	case j.Attempts < maxAttempts && !isFinal(err):
		s.opts.Log.Warn("failed to read file of vector store; will retry", "store", k.store, "file", k.file, "err", err)
		time.AfterFunc(time.Duration(j.Attempts)*retryAfter, s.signal)
		return nil
	default:
		if err := s.fail(ctx, k, err); err != nil {
			return err
		}
	}
	if err := s.opts.Objects.DeleteObject(ctx, k.project, k.object()); err != nil &&
		!errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("end job: %w", err)
	}
	return nil
}

// postpone lets a job to embed a file wait, twice as long after each attempt.
func (s *Service) postpone(ctx context.Context, k jobKey, j job) error {
	rest := min(embedRest<<min(j.Attempts, 10), longestRest)
	if r, err := s.record(ctx, k.project, k.store, k.file); err == nil && r.File.Status == berth.VectorInProgress {
		rest = 0 // it was added again
	}
	_, err := s.opts.Objects.UpdateObject(ctx, k.project, k.object(), func(o *store.Object) error {
		o.ExpiresAt = s.opts.Now().Add(rest).Unix()
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("postpone job: %w", err)
	}
	return nil
}

// isFinal reports whether another attempt would fail as well.
func isFinal(err error) bool {
	switch berth.ErrorCode(err) {
	case berth.CodeInvalid, berth.CodeNotFound, berth.CodeTooLarge, berth.CodeCorrupt:
		return true
	}
	return errors.As(err, new(*Unreadable))
}

// fail records why a file could not be read.
func (s *Service) fail(ctx context.Context, k jobKey, cause error) error {
	reason := &berth.VectorStoreError{Code: "server_error",
		Message: "The server had an error while processing the file."}
	var unreadable *Unreadable
	var known *berth.Error
	switch {
	case errors.As(cause, &unreadable):
		reason = &berth.VectorStoreError{Code: unreadable.Code, Message: unreadable.Message}
	case errors.As(cause, &known):
		reason.Message = known.Message
	}
	s.opts.Log.Warn("failed to read file of vector store", "store", k.store, "file", k.file, "err", cause)
	_, err := s.change(ctx, k.project, k.store, k.file, func(r *record) bool {
		r.File.Status, r.File.LastError = berth.VectorFailed, reason
		return true
	})
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil
	}
	return err
}

// ingest reads a file and saves its text, or embeds one that was read before. It returns
// nil if neither is needed, and errUnembedded if the file is to be embedded later.
func (s *Service) ingest(ctx context.Context, k jobKey) error {
	r, err := s.record(ctx, k.project, k.store, k.file)
	if err == nil && s.lacksVectors(&r) {
		err := s.embedFile(ctx, k)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrNotFound) {
			s.unembedded(k, err)
			err = errUnembedded
		}
		return err
	}
	if berth.ErrorCode(err) == berth.CodeNotFound || err == nil && r.File.Status != berth.VectorInProgress {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.deleteSegments(ctx, k.project, k.store, k.file, r.Segments); err != nil {
		return err
	}
	segments, err := s.readText(ctx, k, &r)
	if err != nil {
		return err
	}
	if err := s.opts.Quota(ctx, k.project, r.File.UsageBytes); err != nil {
		return err
	}
	for n, seg := range segments {
		body, err := json.Marshal(seg)
		if err != nil {
			return fmt.Errorf("encode text of file: %w", err)
		}
		if err := s.opts.Objects.CreateObjects(ctx, k.project, &store.Object{ObjectKey: segmentKey(k.store, k.file, n),
			CreatedAt: s.opts.Now().Unix(), Body: body}); err != nil {
			return fmt.Errorf("save text of file: %w", err)
		}
	}
	if err := s.finish(ctx, k, &r, segments); err != nil {
		return err
	}
	if s.opts.Embedder != nil && r.Model == "" {
		return errUnembedded
	}
	return nil
}

// finish marks a file as read and adds it to the index. If it has been removed or
// cancelled, finish deletes its text.
func (s *Service) finish(ctx context.Context, k jobKey, r *record, segments []*segment) error {
	shelf, err := s.shelf(ctx, k.project, k.store)
	if err != nil {
		return err
	}
	shelf.mu.Lock()
	defer shelf.mu.Unlock()
	now := shelf.files[k.file]
	if now == nil || now.File.Status != berth.VectorInProgress || ctx.Err() != nil {
		return s.deleteSegments(context.WithoutCancel(ctx), k.project, k.store, k.file, len(segments))
	}
	if *now.File.ChunkingStrategy.Static != *r.File.ChunkingStrategy.Static {
		return errors.New("the file was added again while it was read")
	}
	done := *now
	done.File.Status, done.File.UsageBytes, done.File.LastError = berth.VectorCompleted, r.File.UsageBytes, nil
	done.Segments, done.Model = len(segments), r.Model
	if err := s.save(ctx, k.project, &done); err != nil {
		return err
	}
	shelf.files[k.file] = &done
	if shelf.index == nil {
		return nil
	}
	for n, seg := range segments {
		if err := shelf.enlist(ctx, &done, n, seg, s.model()); err != nil {
			shelf.close() // the next search builds it again
			return err
		}
	}
	return nil
}

// readText returns the text of a file in segments, with vectors if there is an Embedder. It
// sets the fields of r that depend on them.
func (s *Service) readText(ctx context.Context, k jobKey, r *record) ([]*segment, error) {
	content, _, err := s.opts.Files.Open(ctx, k.project, k.file)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	text, err := s.opts.Text(ctx, r.Filename, content)
	if err != nil {
		return nil, err
	}
	if len(text) > s.opts.MaxText {
		return nil, &Unreadable{"invalid_file",
			fmt.Sprintf("The file has %d bytes of text, above the limit of %d. Divide it into several files.",
				len(text), s.opts.MaxText)}
	}
	chunks := split(plainText(text), *r.File.ChunkingStrategy.Static)
	if len(chunks) == 0 {
		return nil, &Unreadable{"invalid_file", "The file has no text. If it is a scan, recognize its text first."}
	}
	r.File.UsageBytes, r.Model = 0, ""
	var segments []*segment
	var size int
	for i, c := range chunks {
		if len(segments) == 0 || size+len(c) > segmentBytes {
			segments, size = append(segments, &segment{First: i}), 0
		}
		last := segments[len(segments)-1]
		last.Chunks = append(last.Chunks, c)
		size += len(c)
		r.File.UsageBytes += int64(len(c))
	}
	s.embedAll(ctx, k, r, segments)
	return segments, nil
}
