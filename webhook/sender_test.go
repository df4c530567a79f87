package webhook

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/store"
)

// A gone database fails until it is back.
type gone struct {
	store.Objects
	mu      sync.Mutex
	back    bool
	queried chan struct{}
}

func (g *gone) ExpiredObjects(context.Context, store.Kind, time.Time, int) ([]store.ObjectRef, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() { g.queried <- struct{}{} }()
	if g.back {
		return nil, nil
	}
	return nil, errors.New("the database is not available")
}

// A database that is away is logged once, and once when it is back.
func TestOutageIsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	db := &gone{queried: make(chan struct{})}
	s := New(db, nil, slog.New(slog.NewTextHandler(&text, nil)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	for range 3 {
		<-db.queried
	}
	db.mu.Lock()
	db.back = true
	db.mu.Unlock()
	for range 2 {
		<-db.queried
	}
	go func() {
		for range db.queried {
		}
	}()
	stop()
	<-ended
	if got := text.String(); strings.Count(got, "failed to list due webhook deliveries") != 1 ||
		strings.Count(got, "webhook deliveries continue") != 1 {
		t.Errorf("the log is\n%s", got)
	}
}
