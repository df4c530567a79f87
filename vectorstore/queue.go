package vectorstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
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

// A queue holds the jobs of the worker. It is safe for concurrent use.
type queue struct {
	objects store.Objects
	log     *slog.Logger
	now     func() time.Time
	wake    chan struct{}

	mu      sync.Mutex
	running map[jobKey]context.CancelFunc // files that are being read
}

func newQueue(objects store.Objects, log *slog.Logger, now func() time.Time) *queue {
	return &queue{objects: objects, log: log, now: now, wake: make(chan struct{}, 1),
		running: map[jobKey]context.CancelFunc{}}
}

// signal wakes the worker.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// stop ends the work on matching files.
func (q *queue) stop(match func(jobKey) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k, cancel := range q.running {
		if match(k) {
			cancel()
		}
	}
}

// next returns the jobs to do now, of which projects take turns.
func (q *queue) next(ctx context.Context) ([]jobKey, error) {
	refs, err := q.objects.ExpiredObjects(ctx, store.KindVectorJob, q.now(), maxListed)
	if err != nil {
		return nil, fmt.Errorf("list files to read: %w", err)
	}
	var jobs []jobKey
	for _, r := range inTurn(refs, batch) {
		jobs = append(jobs, jobKey{r.Project, berth.VectorStoreID(r.Parent), berth.FileID(r.ID)})
	}
	return jobs, nil
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

// start counts an attempt and returns the job. The context that it returns ends when the work on the file must. The
// caller must call done.
func (q *queue) start(ctx context.Context, k jobKey) (j job, running context.Context, done func(), err error) {
	_, err = q.objects.UpdateObject(ctx, k.project, k.object(), func(o *store.Object) error {
		if err := json.Unmarshal(o.Body, &j); err != nil {
			return fmt.Errorf("decode job: %w", err)
		}
		j.Attempts++
		o.ExpiresAt = q.now().Add(time.Duration(j.Attempts) * retryAfter).Unix()
		body, err := json.Marshal(j)
		o.Body = body
		return err
	})
	if err != nil {
		return j, nil, nil, fmt.Errorf("start job: %w", err)
	}
	running, cancel := context.WithCancel(ctx)
	q.mu.Lock()
	q.running[k] = cancel
	q.mu.Unlock()
	return j, running, func() {
		q.mu.Lock()
		delete(q.running, k)
		q.mu.Unlock()
		cancel()
	}, nil
}

// end deletes a job.
func (q *queue) end(ctx context.Context, k jobKey) error {
	if err := q.objects.DeleteObject(ctx, k.project, k.object()); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("end job: %w", err)
	}
	return nil
}

// postpone lets a job wait.
func (q *queue) postpone(ctx context.Context, k jobKey, wait time.Duration) error {
	_, err := q.objects.UpdateObject(ctx, k.project, k.object(), func(o *store.Object) error {
		o.ExpiresAt = q.now().Add(wait).Unix()
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("postpone job: %w", err)
	}
	return nil
}

// object returns the object of a new job.
func (q *queue) object(k jobKey) *store.Object {
	now := q.now().Unix()
	return &store.Object{ObjectKey: k.object(), CreatedAt: now, ExpiresAt: now, Body: json.RawMessage(`{}`)}
}

// embedLater creates jobs for files that were read without the present Embedder.
func (q *queue) embedLater(ctx context.Context, p berth.ProjectID, files []jobKey) {
	var jobs []*store.Object
	for _, k := range files {
		jobs = append(jobs, q.object(k))
	}
	for batch := range slices.Chunk(jobs, 500) {
		err := q.objects.CreateObjects(ctx, p, batch...)
		for i := 0; errors.Is(err, store.ErrExists) && i < len(batch); i++ { // some wait already
			if one := q.objects.CreateObjects(ctx, p, batch[i]); one != nil && !errors.Is(one, store.ErrExists) {
				err = one
			}
		}
		if err != nil && !errors.Is(err, store.ErrExists) {
			q.log.Error("failed to schedule embedding; the next start tries again", "project", p, "err", err)
			return
		}
	}
	if len(jobs) > 0 {
		q.signal()
	}
}
