package threads

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/standard"
)

var caller = berth.Caller{Project: "proj_test"}

// A house is a service on a real store and engine, with a model that plays turns.
type house struct {
	*Service
	t     *testing.T
	store store.Store
	model *playedModel
}

func newHouse(t *testing.T, turns ...[]model.Delta) *house {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	check(t, err)
	m := &playedModel{turns: turns}
	events := journal.New(st)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e := engine.New(engine.Options{Responses: st, Runs: st, Objects: st, Usages: st, Journal: events, Models: m,
		Containers: noContainers{}, Tools: tool.NewRegistry(standard.Kinds(standard.Options{})...), Files: noFiles{},
		Owner: "test", Log: log})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		check(t, e.Close(ctx))
		check(t, st.Close())
	})
	s := New(Options{Objects: st, Responses: st, Engine: e, Journal: events, Files: noFiles{},
		ContainerFiles: noContainerFiles{}, Log: log})
	return &house{s, t, st, m}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// thread makes a thread with one message.
func (h *house) thread() string {
	h.t.Helper()
	text := &Text{Value: "hi"}
	th, err := h.CreateThread(h.t.Context(), caller.Project,
		&ThreadRequest{Messages: []MessageRequest{{Role: "user", Content: Contents{{Type: "text", Text: text}}}}})
	check(h.t, err)
	return th.ID
}

func (h *house) assistant() *Assistant {
	h.t.Helper()
	weather := berth.NewTool(map[string]any{"type": "function", "function": map[string]any{"name": "weather"}})
	a, err := h.Catalog.Create(h.t.Context(), caller.Project, &Assistant{Model: "played", Tools: []berth.Tool{weather}})
	check(h.t, err)
	return a
}

// noted saves a new run of a thread without starting it, like a server that crashes then.
func (h *house) noted() *Record {
	h.t.Helper()
	r := newRecord(h.assistant(), &Thread{ID: h.thread()}, &RunRequest{}, time.Now().Unix())
	objects, err := runObjects(r, "")
	check(h.t, err)
	check(h.t, h.Objects.CreateObjects(h.t.Context(), caller.Project, objects...))
	return r
}

// change alters a run in the store.
func (h *house) change(r *Record, change func(*Record)) {
	h.t.Helper()
	_, err := update(h.t.Context(), h.Objects, caller.Project, runKey(r.Run.ThreadID, r.Run.ID), func(r *Record) error {
		change(r)
		return nil
	})
	check(h.t, err)
}

// until retrieves a run until it has a status.
func (h *house) until(r *Record, want Status) *Run {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last Status
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		run, err := h.Run(h.t.Context(), caller, r.Run.ThreadID, r.Run.ID)
		check(h.t, err)
		if last = run.Status; last == want {
			return run
		}
	}
	h.t.Fatalf("the run is %s, want %s", last, want)
	return nil
}

// said returns the texts of the assistants' messages in a thread.
func (h *house) said(thread string) []string {
	h.t.Helper()
	messages, _, err := h.Messages(h.t.Context(), caller, thread, "", store.Page{Limit: 100, Ascending: true})
	check(h.t, err)
	out := []string{}
	for _, m := range messages {
		if m.Role == "assistant" {
			out = append(out, textOf(m.Content, 0))
		}
	}
	return out
}

// A playedModel plays one list of deltas for each turn. A nil delta holds the turn
// until the test ends or the run does.
type playedModel struct {
	turns [][]model.Delta

	mu    sync.Mutex
	asked int
	err   error // of finding the model
}

func (m *playedModel) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *playedModel) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func (m *playedModel) Route(name string) (model.Provider, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m, name, m.err
}

func (m *playedModel) Window(string) int { return 0 }

func (m *playedModel) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Delta, error] {
	m.mu.Lock()
	turn := m.turns[m.asked%len(m.turns)]
	m.asked++
	m.mu.Unlock()
	return func(yield func(model.Delta, error) bool) {
		for _, d := range turn {
			if d == nil {
				<-ctx.Done()
				yield(nil, context.Cause(ctx))
				return
			}
			if !yield(d, nil) {
				return
			}
		}
		yield(model.Finish{Reason: model.FinishStop,
			Usage: berth.Usage{InputTokens: 3, OutputTokens: 2, TotalTokens: 5}}, nil)
	}
}

type noContainers struct{}

func (noContainers) Provide(context.Context, berth.Caller, berth.ShellToolEnvironment,
	berth.ContainerID) (berth.ContainerID, error) {
	return "", errors.ErrUnsupported
}

func (noContainers) Reserve(context.Context, berth.Caller, berth.ContainerID) error {
	return errors.ErrUnsupported
}

func (noContainers) Begin(context.Context, berth.ProjectID, berth.ContainerID) error {
	return errors.ErrUnsupported
}

func (noContainers) Release(berth.ProjectID, berth.ContainerID) {}

func (noContainers) Template(context.Context, berth.ProjectID, berth.ContainerID) (string, error) {
	return "", errors.ErrUnsupported
}

func (noContainers) Files(context.Context, berth.ProjectID, berth.ContainerID) ([]*berth.ContainerFile, error) {
	return nil, errors.ErrUnsupported
}

type noFiles struct{}

func (noFiles) Get(_ context.Context, _ berth.ProjectID, id berth.FileID) (*berth.File, error) {
	return nil, berth.Errorf(berth.CodeNotFound, "No such File object: %s", id)
}

func (noFiles) Create(context.Context, berth.ProjectID, files.CreateRequest, io.Reader) (*berth.File, error) {
	return nil, errors.ErrUnsupported
}

type noContainerFiles struct{}

func (noContainerFiles) Open(context.Context, berth.ProjectID, berth.ContainerID, berth.CFileID) (io.ReadCloser,
	*berth.ContainerFile, error) {
	return nil, nil, errors.ErrUnsupported
}

func (noFiles) Open(context.Context, berth.ProjectID, berth.FileID) (io.ReadCloser, *berth.File, error) {
	return nil, nil, errors.ErrUnsupported
}
