package batch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/store"
)

const (
	pageObjects = 1000    // results read at a time
	pageBytes   = 1 << 20 // about the size of such a page, or one result
)

// results yields the stored results of a batch and their lines, in the order of their creation.
func (s *Service) results(ctx context.Context, k key) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		page := store.Page{Limit: pageObjects, Bytes: pageBytes, Ascending: true}
		for {
			list, more, err := s.opts.Objects.ListObjects(ctx, k.project, store.KindBatchLine, string(k.id), page)
			if err != nil {
				yield(nil, fmt.Errorf("list results: %w", err))
				return
			}
			for _, o := range list {
				if !yield(o, nil) {
					return
				}
			}
			if !more {
				return
			}
			page.After = list[len(list)-1].ID
		}
	}
}

// load counts the stored results of a batch.
func (s *Service) load(ctx context.Context, r *run) error {
	counted := &run{done: map[int]bool{}}
	for o, err := range s.results(ctx, r.key) {
		if err != nil {
			return err
		}
		line, err := strconv.Atoi(o.ID)
		if err != nil {
			return fmt.Errorf("line of result: %w", err)
		}
		var it result
		if err := json.Unmarshal(o.Body, &it); err != nil {
			return fmt.Errorf("decode result: %w", err)
		}
		counted.done[line] = true
		counted.count(it)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.counted, r.counts, r.usage, r.bytes, r.done = true, counted.counts, counted.usage, counted.bytes, counted.done
	return nil
}

// unfinished are the reasons in the error file for requests without a result.
var unfinished = map[berth.BatchStatus]*reason{
	berth.BatchExpired: {"batch_expired", "This request could not be executed before the completion window expired."},
	berth.BatchCancelled: {"batch_cancelled",
		"This request was not executed to its end, because the batch was cancelled."},
}

// finish writes the files of a batch and saves its last status.
func (s *Service) finish(ctx context.Context, r *run, rec *record, status berth.BatchStatus) error {
	if _, err := s.opts.Pace(ctx, r.project); err != nil {
		return fmt.Errorf("pace of project: %w", err) // it was archived: nothing more is stored
	}
	if err := s.load(ctx, r); err != nil {
		return err
	}
	left := rec.Batch.RequestCounts.Total - len(r.done)
	if unfinished[status] == nil {
		left = 0
	}
	var made struct{ output, errors *berth.FileID }
	if r.counts.Completed > 0 {
		if err := s.write(ctx, r, rec, rec.OutputID, "output", func(w io.Writer) error {
			return s.copyResults(ctx, w, r.key, false)
		}); err != nil {
			return err
		}
		made.output = &rec.OutputID
	}
	if r.counts.Failed+left > 0 {
		if err := s.write(ctx, r, rec, rec.ErrorID, "error", func(w io.Writer) error {
			if err := s.copyResults(ctx, w, r.key, true); err != nil || left == 0 {
				return err
			}
			return s.writeUnfinished(ctx, w, r, rec, unfinished[status])
		}); err != nil {
			return err
		}
		made.errors = &rec.ErrorID
	}
	now := s.opts.Now().Unix()
	_, err := s.update(ctx, r.key, func(rec *record) error {
		b := &rec.Batch
		b.Status, b.OutputFileID, b.ErrorFileID = status, made.output, made.errors
		b.RequestCounts.Completed, b.RequestCounts.Failed, b.Usage = r.counts.Completed, r.counts.Failed+left, &r.usage
		rec.Left = left
		switch status {
		case berth.BatchCompleted:
			b.CompletedAt = &now
		case berth.BatchExpired:
			b.ExpiredAt = &now
		case berth.BatchCancelled:
			b.CancelledAt = &now
		case berth.BatchFailed:
			b.FailedAt = &now
		}
		return nil
	})
	return err
}

// maxOutput is the size limit of a file of results. They are stored already, and bounded by the
// number of requests and by the limits of an answer.
const maxOutput = 1 << 40

// write makes a file of a batch, unless an earlier attempt has made it. The quota does not count
// it: its content replaces the results, and a batch must be able to end in a full project.
func (s *Service) write(ctx context.Context, r *run, rec *record, id berth.FileID, kind string,
	content func(io.Writer) error) error {
	_, err := s.opts.Files.Get(ctx, r.project, id)
	if berth.ErrorCode(err) != berth.CodeNotFound {
		return err
	}
	in, out := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		buffer := bufio.NewWriterSize(out, 64<<10)
		out.CloseWithError(errors.Join(content(buffer), buffer.Flush()))
	}()
	_, err = s.opts.Files.Create(ctx, r.project, files.CreateRequest{ID: id, Filename: string(r.id) + "_" + kind +
		".jsonl", Purpose: files.PurposeBatchOutput,
		ExpiresAfterSeconds: rec.Expiry, MaxBytes: maxOutput, Replaces: maxOutput}, in)
	in.CloseWithError(io.ErrClosedPipe) // ends the goroutine after an error
	<-written
	if err != nil {
		return fmt.Errorf("write %s file of batch: %w", kind, err)
	}
	return nil
}

// copyResults writes the results that failed, or those that did not.
func (s *Service) copyResults(ctx context.Context, w io.Writer, k key, failed bool) error {
	for o, err := range s.results(ctx, k) {
		if err != nil {
			return err
		}
		var it result
		if err := json.Unmarshal(o.Body, &it); err != nil {
			return fmt.Errorf("decode result: %w", err)
		}
		if it.Failed != failed {
			continue
		}
		if _, err := w.Write(append(it.Output, '\n')); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
	}
	return nil
}

// writeUnfinished writes a line for each request without a result. It writes nothing if the
// input file no longer exists.
func (s *Service) writeUnfinished(ctx context.Context, w io.Writer, r *run, rec *record, why *reason) error {
	in, _, err := s.opts.Files.Open(ctx, r.project, rec.Batch.InputFileID)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open input file: %w", err)
	}
	defer in.Close()
	for lines := newLines(in); ; {
		line, number, err := lines.next()
		if errors.Is(err, io.EOF) || isGone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read input file: %w", err)
		}
		if r.done[number] {
			continue
		}
		request, err := parse(line, number, rec.Batch.Endpoint)
		if err != nil {
			return fmt.Errorf("parse validated line %d: %w", number, err)
		}
		text, err := json.Marshal(output{ID: berth.NewID(berth.PrefixBatchRequest), CustomID: request.CustomID,
			Error: why})
		if err != nil {
			return fmt.Errorf("encode result: %w", err)
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
	}
}

// end reports a batch with its last status, and deletes what its run has stored.
func (s *Service) end(ctx context.Context, k key, rec *record) error {
	if s.opts.Ended != nil {
		if err := s.opts.Ended(ctx, k.project, &rec.Batch); err != nil {
			return fmt.Errorf("report the end of batch: %w", err)
		}
	}
	return s.clean(ctx, k)
}

// clean deletes the results and the job of a batch that has ended.
func (s *Service) clean(ctx context.Context, k key) error {
	for {
		list, more, err := s.opts.Objects.ListObjects(ctx, k.project, store.KindBatchLine, string(k.id),
			store.Page{Limit: pageObjects, Bytes: pageBytes})
		if err != nil {
			return fmt.Errorf("list results: %w", err)
		}
		for _, o := range list {
			if err := s.opts.Objects.DeleteObject(ctx, k.project, o.ObjectKey); err != nil &&
				!errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("delete result: %w", err)
			}
		}
		if !more {
			return s.deleteJob(ctx, k)
		}
	}
}

func (s *Service) deleteJob(ctx context.Context, k key) error {
	if err := s.opts.Objects.DeleteObject(ctx, k.project, k.job()); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete job: %w", err)
	}
	return nil
}
