package vectorstore

import (
	"context"
	"errors"
	"fmt"
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

// Run reads the files that were added, one after the other, until ctx ends. Files that an
// earlier process did not finish are read again.
func (s *Service) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.queue.wake:
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
		jobs, err := s.queue.next(ctx)
		if err != nil || len(jobs) == 0 {
			return err
		}
		for _, k := range jobs {
			if err := s.work(ctx, k); err != nil {
				return err
			}
		}
	}
}

// work does one job and deletes it. It returns an error if the store fails.
func (s *Service) work(ctx context.Context, k jobKey) error {
	j, running, done, err := s.queue.start(ctx, k)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	err = s.ingest(running, k)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case running.Err() != nil, errors.Is(err, store.ErrNotFound), err == nil:
	case errors.Is(err, errUnembedded):
		return s.postpone(ctx, k, j)
	case j.Attempts < maxAttempts && !isFinal(err):
		s.opts.Log.Warn("failed to read file of vector store; will retry", "store", k.store, "file", k.file, "err", err)
		time.AfterFunc(time.Duration(j.Attempts)*retryAfter, s.queue.signal)
		return nil
	default:
		if err := s.fail(ctx, k, err); err != nil {
			return err
		}
	}
	return s.queue.end(ctx, k)
}

// postpone lets a job to embed a file wait, twice as long after each attempt.
func (s *Service) postpone(ctx context.Context, k jobKey, j job) error {
	rest := min(embedRest<<min(j.Attempts, 10), longestRest)
	if r, err := s.record(ctx, k.project, k.store, k.file); err == nil && r.File.Status == berth.VectorInProgress {
		rest = 0 // it was added again
	}
	return s.queue.postpone(ctx, k, rest)
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
	if err == nil && s.vectors.lacks(&r) {
		err := s.embedFile(ctx, k)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrNotFound) {
			s.vectors.failed(k, err)
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
	if err := s.texts.delete(ctx, k.project, k.store, k.file, r.Segments); err != nil {
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
		if err := s.texts.create(ctx, k, n, seg); err != nil {
			return err
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
	shelf, err := s.shelves.load(ctx, k.project, k.store)
	if err != nil {
		return err
	}
	shelf.mu.Lock()
	defer shelf.mu.Unlock()
	now := shelf.files[k.file]
	if now == nil || now.File.Status != berth.VectorInProgress || ctx.Err() != nil {
		return s.texts.delete(context.WithoutCancel(ctx), k.project, k.store, k.file, len(segments))
	}
	if *now.File.ChunkingStrategy.Static != *r.File.ChunkingStrategy.Static {
		return errors.New("the file was added again while it was read")
	}
	done := *now
	done.File.Status, done.File.UsageBytes, done.File.LastError = berth.VectorCompleted, r.File.UsageBytes, nil
	done.Segments, done.Model = len(segments), r.Model
	if err := s.records.save(ctx, k.project, &done); err != nil {
		return err
	}
	shelf.files[k.file] = &done
	if shelf.index == nil {
		return nil
	}
	for n, seg := range segments {
		if err := shelf.enlist(ctx, &done, n, seg, s.vectors.model()); err != nil {
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
	s.vectors.embedAll(ctx, k, r, segments)
	return segments, nil
}
