package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store"
)

// seedQuestion is the input of each stored response.
var seedQuestion = "Answer at once." + strings.Repeat(" word", answerWords-3)

// seeders is how many copies are written concurrently. The store commits them together.
const seeders = 256

// seed writes n copies of a response into the store of a server that is stopped, as a server
// would: first the new response, then its events with the final one. Each copy has a new id,
// and its items too. seed returns the ids.
func seed(ctx context.Context, dir, id string, n int) (ids []string, err error) {
	unlock, err := state.Lock(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	s, err := state.OpenExisting(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	m, err := newMould(ctx, s.Store, id)
	if err != nil {
		return nil, fmt.Errorf("read the response to copy: %w", err)
	}
	ids = make([]string, n)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range seeders {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if ids[i], err = m.cast(ctx, s.Store); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return ids, g.Wait()
}

// A mould is a stored response that is copied.
type mould struct {
	request *berth.ResponseRequest
	json    []byte   // of its parts
	ids     [][]byte // its id and those of its items, which each copy replaces
}

// parts is what the store has of a response beside its request.
type parts struct {
	Body   *berth.Response
	Input  []berth.Item
	Events []store.Event
}

func newMould(ctx context.Context, s store.Store, id string) (*mould, error) {
	project := berth.DefaultProject
	r, err := s.GetResponse(ctx, project, berth.ResponseID(id))
	if err != nil {
		return nil, err
	}
	p := parts{Body: r.Body, Input: r.Input}
	for after := int64(-1); ; after = p.Events[len(p.Events)-1].SequenceNumber {
		page, err := s.Events(ctx, project, r.Body.ID, after, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		p.Events = append(p.Events, page...)
	}
	m := &mould{request: r.Request, ids: [][]byte{[]byte(id)}}
	if m.json, err = json.Marshal(p); err != nil {
		return nil, err
	}
	for _, item := range slices.Concat(r.Input, r.Body.Output) {
		m.ids = append(m.ids, []byte(item.ID()))
	}
	return m, nil
}

// cast writes a copy and returns its id.
func (m *mould) cast(ctx context.Context, s store.Store) (id string, err error) {
	text := m.json
	for i, old := range m.ids {
		prefix, _, _ := strings.Cut(string(old), "_")
		fresh := berth.NewID(prefix + "_")
		if text = bytes.ReplaceAll(text, old, []byte(fresh)); i == 0 {
			id = fresh
		}
	}
	var c parts
	if err := json.Unmarshal(text, &c); err != nil {
		return "", err
	}
	started := *c.Body
	started.Status, started.Output, started.Usage = berth.StatusInProgress, nil, nil
	r := &store.Response{Project: berth.DefaultProject, Body: &started, Request: m.request, Input: c.Input}
	lease := store.Lease{Owner: "bench", Until: time.Now().Add(time.Hour)}
	if err := s.CreateResponse(ctx, r, c.Events[:1], lease); err != nil {
		return "", err
	}
	return id, s.AppendEvents(ctx, r.Project, c.Body.ID, lease.Owner, c.Events[1:], c.Body)
}

// stored returns the size of a server's database and of its keys, in bytes, without the
// write-ahead log.
func (s *server) stored() (float64, error) {
	total := 0.0
	for _, name := range []string{"berth.db", "berth.keys"} {
		fi, err := os.Stat(filepath.Join(s.state, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if err == nil {
			total += float64(fi.Size())
		}
	}
	return total, nil
}
