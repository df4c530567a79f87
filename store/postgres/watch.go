package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth/internal/backoff"
)

const (
	// channel is the name of the channel for notifications.
	channel = "berth"
	// many is the payload of a notification about more ids than fit into one.
	many = "*"
	// maxPayload is the size of a payload, below PostgreSQL's limit of 8000 bytes.
	maxPayload = 7 << 10
	// pollEvery is how often watchers are woken without a notification, which may be lost
	// with its connection.
	pollEvery = time.Second
)

// payload returns the payload for ids of changed rows.
func payload(ids []string) string {
	slices.Sort(ids)
	text := strings.Join(slices.Compact(ids), " ")
	if len(text) > maxPayload || strings.ContainsRune(text, 0) {
		return many
	}
	return text
}

// A watcher wakes those who wait for changes of rows, by any process.
type watcher struct {
	config *pgx.ConnConfig
	lost   func() // called when the connection for notifications is lost
	log    *slog.Logger

	mu      sync.Mutex
	watches map[string]map[chan struct{}]bool // by id

	end  context.CancelFunc
	done sync.WaitGroup
}

func newWatcher(config *pgx.ConnConfig, lost func(), log *slog.Logger) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{config: config, lost: lost, log: log, watches: map[string]map[chan struct{}]bool{}, end: cancel}
	w.done.Go(func() { w.listen(ctx) })
	w.done.Go(func() { w.poll(ctx) })
	return w
}

func (w *watcher) close() error {
	w.end()
	w.done.Wait()
	return nil
}

// Watch implements store.Watcher.
func (w *watcher) Watch(id string) (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches[id] == nil {
		w.watches[id] = map[chan struct{}]bool{}
	}
	w.watches[id][wake] = true
	return wake, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watches[id], wake)
		if len(w.watches[id]) == 0 {
			delete(w.watches, id)
		}
	}
}

// wake wakes the watches of ids, or all watches for many.
func (w *watcher) wake(payload string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if payload == many {
		for _, list := range w.watches {
			send(list)
		}
		return
	}
	for id := range strings.SplitSeq(payload, " ") {
		send(w.watches[id])
	}
}

func send(list map[chan struct{}]bool) {
	for wake := range list {
		select {
		case wake <- struct{}{}:
		default: // it has not received the last one yet
		}
	}
}

// poll wakes all watches now and then.
func (w *watcher) poll(ctx context.Context) {
	for backoff.Sleep(ctx, pollEvery) == nil {
		w.wake(many)
	}
}

// listen receives notifications, and connects again when its connection is lost.
func (w *watcher) listen(ctx context.Context) {
	delays := backoff.Delays{First: retryPause, Max: 5 * time.Second}
	for ctx.Err() == nil {
		if err := w.receive(ctx, &delays); err != nil && ctx.Err() == nil {
			w.log.Warn("lost the connection for notifications; followers poll until it is back", "err", err)
		}
		_ = backoff.Sleep(ctx, delays.Next())
	}
}

func (w *watcher) receive(ctx context.Context, delays *backoff.Delays) (err error) {
	c, err := connect(ctx, w.config)
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = errors.Join(err, c.Close(ending))
	}()
	if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	delays.Reset()
	w.wake(many) // changes before are not reported
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			w.lost()
			return fmt.Errorf("wait for a notification: %w", err)
		}
		w.wake(n.Payload)
	}
}
