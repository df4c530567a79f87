package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/imagegeneration"
	"github.com/berth-run/berth/tool/standard"
)

const project berth.ProjectID = "proj_test"

var caller = berth.Caller{Project: project, Permissions: berth.AllPermissions(project)}

// A house is an engine on a real store, with a model that plays turns and
// containers that are a map of what ran in them.
type house struct {
	t          *testing.T
	store      store.Store
	journal    *journal.Journal
	engine     *engine.Engine
	model      *playedModel
	containers *fakeContainers
	kinds      []tool.Kind // beside the standard ones
	images     imagegeneration.Options
	files      countedFiles
	log        io.Writer
	quota      engine.Quota
	tracer     trace.Tracer
	retry      engine.Retry
	patience   time.Duration // with clients that were lost
	lease      time.Duration
	others     cluster.Placement
	output     int64         // default 16 MiB
	owner      string        // default "test"
	follow     time.Duration // the patience of followers with a store that fails; 0 is the default
}

// stuck is how long a test waits for what should happen. In a bubble it ends as soon as nothing can
// happen any more; elsewhere the limit of the test binary comes first.
const stuck = time.Hour

// inBubble runs a test beside others in a bubble, where time passes only while everything waits.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// runInBubble runs a subtest beside others in a bubble of its own.
func runInBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

func newHouse(t *testing.T, turns ...turn) *house {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	h := &house{t: t, log: t.Output(), store: st, model: &playedModel{turns: turns, called: make(chan struct{}, 1000)},
		containers: &fakeContainers{calls: map[string]*fakeCall{}, commands: map[string]func(*fakeCall){}}}
	h.start()
	t.Cleanup(func() {
		h.stop()
		h.containers.kill()
	})
	return h
}

// start opens an engine on the store, as a server does; after stop it is the
// next life of the same server.
func (h *house) start() { h.startOn(h.store) }

// startOn starts with another keeper of responses.
func (h *house) startOn(responses store.Responses) {
	h.journal = journal.New(responses)
	if h.follow > 0 {
		h.journal.SetPatience(h.follow)
	}
	h.engine = engine.New(engine.Options{Responses: responses, Runs: h.store, Objects: h.store, Usages: h.store,
		Quota: h.quota, Tracer: h.tracer, Retry: h.retry, Journal: h.journal, Models: h.model,
		Containers: h.containers,
		Tools: tool.NewRegistry(append(standard.Kinds(standard.Options{Containers: h.containers,
			Desktops: h.containers, Images: h.images}), h.kinds...)...), Files: &h.files, Owner: cmp.Or(h.owner,
			"test"), Placement: h.others, Limits: engine.Limits{Return: h.patience, Lease: h.lease, Output: h.output},
		Log: slog.New(slog.NewTextHandler(h.log, nil))})
}

func (h *house) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stuck)
	defer cancel()
	if err := h.engine.Close(ctx); err != nil {
		h.t.Errorf("Close: %v", err)
	}
}

func (h *house) create(body string) *berth.Response {
	h.t.Helper()
	r, err := h.tryCreate(h.t.Context(), body)
	if err != nil {
		h.t.Fatalf("Create: %v", err)
	}
	return r
}

func (h *house) tryCreate(ctx context.Context, body string, options ...engine.Option) (*berth.Response, error) {
	h.t.Helper()
	var req berth.ResponseRequest
	if err := json.Unmarshal([]byte(body), &req); err != nil {
		h.t.Fatal(err)
	}
	return h.engine.Create(ctx, caller, &req, options...)
}

// events follows a response to its end.
func (h *house) events(id berth.ResponseID) []berth.Event {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), stuck)
	defer cancel()
	var out []berth.Event
	for rec, err := range h.journal.Follow(ctx, project, id, -1) {
		if err != nil {
			h.t.Fatalf("Follow: %v, after %v", err, types(out))
		}
		var ev berth.Event
		if err := json.Unmarshal(rec.Data, &ev); err != nil {
			h.t.Fatal(err)
		}
		if ev.SequenceNumber != int64(len(out)) {
			h.t.Fatalf("event %d has sequence number %d", len(out), ev.SequenceNumber)
		}
		out = append(out, ev)
	}
	return out
}

// final follows a response to its end and checks that the last event, the fold of
// all events and the stored object are one.
func (h *house) final(id berth.ResponseID) *berth.Response {
	h.t.Helper()
	var fold berth.Response
	events := h.events(id)
	for i := range events {
		if err := fold.Apply(&events[i]); err != nil {
			h.t.Fatal(err)
		}
		if n := i + 1; n < len(events) && events[n].Type.Final() {
			if diff := gocmp.Diff(asJSON(h.t, events[n].Response.Output), asJSON(h.t, fold.Output)); diff != "" {
				h.t.Errorf("the streamed items differ from the final ones (-final +streamed):\n%s", diff)
			}
		}
	}
	rec, err := h.store.GetResponse(h.t.Context(), project, id)
	if err != nil {
		h.t.Fatal(err)
	}
	if diff := gocmp.Diff(asJSON(h.t, fold), asJSON(h.t, rec.Body)); diff != "" {
		h.t.Errorf("the stored response differs from the fold of its events (-fold +stored):\n%s", diff)
	}
	return rec.Body
}

// waitFor returns when the response has an event of a type.
func (h *house) waitFor(id berth.ResponseID, want berth.EventType) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), stuck)
	defer cancel()
	for rec, err := range h.journal.Follow(ctx, project, id, -1) {
		if err != nil {
			h.t.Fatal(err)
		}
		if rec.Type == want {
			return
		}
	}
	h.t.Fatalf("the response ended without %s", want)
}

// settled returns when the run of a response has ended.
func (h *house) settled(id berth.ResponseID) {
	h.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.engine.Settled(id)
	}()
	select {
	case <-ended:
	case <-time.After(stuck):
		h.t.Fatalf("the run of response %s does not end", id)
	}
}

// waitCalled returns when the model has been called n times.
func (h *house) waitCalled(n int) {
	h.t.Helper()
	for range n {
		select {
		case <-h.model.called:
		case <-time.After(stuck):
			h.t.Fatalf("the model was not called %d times", n)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func types(events []berth.Event) []string {
	var out []string
	for _, ev := range events {
		if name := string(ev.Type); len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	return out
}

// outline is the output in short: type, status and what matters of each item.
func outline(t *testing.T, items []berth.Item) []string {
	t.Helper()
	var out []string
	for _, it := range items {
		line := fmt.Sprintf("%s %s", it.Type(), it.Status())
		switch it.Type() {
		case berth.ItemMessage:
			var m berth.Message
			decode(t, it, &m)
			for _, c := range m.Content {
				line += " " + c.Text + c.Refusal
			}
		case berth.ItemFunctionCall:
			var c berth.FunctionCall
			decode(t, it, &c)
			line += " " + c.Name + c.Arguments
		case berth.ItemShellCall:
			var c berth.ShellCall
			decode(t, it, &c)
			line += " " + strings.Join(c.Action.Commands, "; ")
		case berth.ItemShellCallOutput:
			var o berth.ShellCallOutput
			decode(t, it, &o)
			for _, c := range o.Output {
				line += fmt.Sprintf(" [%s%s", c.Stdout, c.Stderr)
				if c.Outcome.ExitCode != nil {
					line += fmt.Sprintf(" exit %d", *c.Outcome.ExitCode)
				} else {
					line += " " + c.Outcome.Type
				}
				line += "]"
			}
		}
		out = append(out, line)
	}
	return out
}

func decode(t *testing.T, it berth.Item, body any) {
	t.Helper()
	if err := it.Decode(body); err != nil {
		t.Fatal(err)
	}
}

// A turn is one turn of the model: its deltas, with errors in their places.
type turn []any

// hang is a turn's way to stop in the middle until it is cancelled.
type hang struct{}

// until is a turn's way to stop in the middle until the function returns.
type until func()

func say(text string) turn { return turn{model.Text{Text: text}} }

func shell(id, arguments string) turn {
	half := len(arguments) / 2
	return turn{model.Call{ID: id, Name: "shell", Arguments: arguments[:half]}, model.Call{Arguments: arguments[half:]}}
}

// noUsage in a turn makes its Finish report no usage.
type noUsage struct{}

// A playedModel plays its turns in order and records its requests.
type playedModel struct {
	mu       sync.Mutex
	turns    []turn
	requests []*model.Request
	window   int
	native   []string      // types of the tools that the upstream has itself
	gate     chan struct{} // if set, each turn first waits for one value
	called   chan struct{} // receives one value for each call
}

func (m *playedModel) Route(name string) (model.Provider, string, error) {
	if name != "played" {
		return nil, "", &berth.Error{Code: berth.CodeNotFound, Wire: "model_not_found", Message: "no such model"}
	}
	return m, "upstream-name", nil
}

// HasTool implements model.ToolOwner.
func (m *playedModel) HasTool(_, toolType string) bool { return slices.Contains(m.native, toolType) }

func (m *playedModel) Window(string) int { return m.window }

func (m *playedModel) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if m.gate != nil {
			select {
			case <-m.gate:
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
		m.mu.Lock()
		m.requests = append(m.requests, req)
		select {
		case m.called <- struct{}{}:
		default: // no test waits
		}
		var t turn
		if len(m.turns) > 0 {
			t, m.turns = m.turns[0], m.turns[1:]
		}
		m.mu.Unlock()
		finish := model.Finish{Reason: model.FinishStop,
			Usage: berth.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15}}
		for _, d := range t {
			switch d := d.(type) {
			case error:
				yield(nil, d)
				return
			case hang:
				<-ctx.Done()
				yield(nil, ctx.Err())
				return
			case until:
				d()
			case noUsage:
				finish.Usage = berth.Usage{}
			case model.Finish:
				finish.Reason, finish.Origin, finish.Cost = d.Reason, d.Origin, d.Cost
				if d.Usage != (berth.Usage{}) {
					finish.Usage = d.Usage
				}
			case model.Delta:
				if !yield(d, nil) {
					return
				}
			}
		}
		yield(finish, nil)
	}
}

// fewFiles has the files file-cat, file-text and file-gif, of every project.
type fewFiles struct{}

func (fewFiles) Open(_ context.Context, _ berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error) {
	if id == "file-cat" {
		return io.NopCloser(strings.NewReader("meow")), &berth.File{ID: id, Filename: "cat.png", Bytes: 4}, nil
	}
	if id == "file-text" {
		return io.NopCloser(strings.NewReader("meow")), &berth.File{ID: id, Filename: "cat.txt", Bytes: 4}, nil
	}
	if id == "file-gif" {
		return io.NopCloser(strings.NewReader("GIF89a")), &berth.File{ID: id, Filename: "cat", Bytes: 6}, nil
	}
	return nil, nil, berth.Errorf(berth.CodeNotFound, "No such File object")
}

// countedFiles are fewFiles that count how often one is opened.
type countedFiles struct {
	fewFiles
	opened atomic.Int64
}

func (f *countedFiles) Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File,
	error) {
	f.opened.Add(1)
	return f.fewFiles.Open(ctx, p, id)
}

// fakeContainers run commands that are Go functions. As the guest does, they run each call
// id once and replay its events to later requests.
type fakeContainers struct {
	mu       sync.Mutex
	made     int
	calls    map[string]*fakeCall
	commands map[string]func(*fakeCall)
	ran      []string
	files    []*berth.ContainerFile
	history  []string // what the engine asked of containers, in order
}

// kill ends the commands that still run.
func (f *fakeContainers) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		c.kill.Do(func() { close(c.killed) })
	}
}

func (f *fakeContainers) note(what string, id berth.ContainerID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = append(f.history, what+" "+string(id))
}

func (f *fakeContainers) Reserve(_ context.Context, _ berth.Caller, id berth.ContainerID) error {
	f.note("reserve", id)
	return nil
}

func (f *fakeContainers) Begin(_ context.Context, _ berth.ProjectID, id berth.ContainerID) error {
	f.note("begin", id)
	return nil
}

func (f *fakeContainers) Release(_ berth.ProjectID, id berth.ContainerID) { f.note("release", id) }

func (f *fakeContainers) Template(context.Context, berth.ProjectID, berth.ContainerID) (string, error) {
	return "sha256:template", nil
}

func (f *fakeContainers) Files(context.Context, berth.ProjectID, berth.ContainerID) ([]*berth.ContainerFile, error) {
	return f.files, nil
}

func (f *fakeContainers) Provide(_ context.Context, _ berth.Caller, env berth.ShellToolEnvironment,
	last berth.ContainerID) (berth.ContainerID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if env.ContainerID != "" {
		return env.ContainerID, nil
	}
	if last != "" {
		return last, nil
	}
	f.made++
	return berth.ContainerID(fmt.Sprintf("cntr_%d", f.made)), nil
}

func (*fakeContainers) Contents(berth.ProjectID, berth.ContainerID) *berth.TemplateContents {
	return nil
}

func (f *fakeContainers) Skills(berth.ProjectID, berth.ContainerID) []berth.ContainerSkill {
	return nil
}

func (f *fakeContainers) Shell(berth.Caller, berth.ContainerID) guest.Execer { return f.exec() }

func (f *fakeContainers) exec() guest.Execer { return fakeExecer{f} }

type fakeExecer struct{ *fakeContainers }

// A fakeCall is a shell call with one command.
type fakeCall struct {
	mu     sync.Mutex
	events []guest.ShellEvent
	ended  bool
	wake   chan struct{}
	kill   sync.Once
	killed chan struct{}
}

func (c *fakeCall) print(s string) { c.add(guest.ShellEvent{Kind: guest.ShellStdout, Data: []byte(s)}) }
func (c *fakeCall) exit(code int)  { c.add(guest.ShellEvent{Kind: guest.ShellExit, ExitCode: code}) }

func (c *fakeCall) add(ev guest.ShellEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, ev)
	c.ended = c.ended || ev.Kind == guest.ShellExit || ev.Kind == guest.ShellTimeout
	close(c.wake)
	c.wake = make(chan struct{})
}

func (f fakeExecer) Shell(ctx context.Context, call guest.ShellCall) iter.Seq2[guest.ShellEvent, error] {
	return func(yield func(guest.ShellEvent, error) bool) {
		f.mu.Lock()
		c := f.calls[call.CallID]
		if c == nil {
			c = &fakeCall{wake: make(chan struct{}), killed: make(chan struct{})}
			f.calls[call.CallID] = c
			f.ran = append(f.ran, call.Commands...)
			run := f.commands[call.Commands[0]]
			if run == nil {
				run = func(c *fakeCall) { c.print(call.Commands[0] + " ran"); c.exit(0) }
			}
			go run(c)
		}
		f.mu.Unlock()
		for n := 0; ; {
			c.mu.Lock()
			events, ended, wake := c.events[n:], c.ended, c.wake
			c.mu.Unlock()
			for _, ev := range events {
				if !yield(ev, nil) {
					return
				}
			}
			n += len(events)
			if ended {
				return
			}
			select {
			case <-wake:
			case <-ctx.Done():
				yield(guest.ShellEvent{}, context.Cause(ctx))
				return
			}
		}
	}
}

func (f fakeExecer) Cancel(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.calls[id]
	if c == nil {
		return errors.New("no such call")
	}
	c.kill.Do(func() { close(c.killed) })
	return nil
}

func (f fakeExecer) Forget(context.Context, string) {}

func (f fakeExecer) Prepare(guest.ShellCall) {}
