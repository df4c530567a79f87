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
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/standard"
)

// TestRecoveryFromAnyPrefix kills the server after each append of a response (after each third one
// unless long tests are enabled), and then again at random moments of the recovery. However often,
// the response ends as if nothing had happened: with the same items, apart from what was left
// incomplete, with each command run once, and with events that have no gap and add up.
func TestRecoveryFromAnyPrefix(t *testing.T) {
	t.Parallel()
	rounds, step := 1, 3
	if longtest.Enabled() {
		rounds, step = 5, 1
	}
	for name, s := range scenes {
		runInBubble(t, name, func(t *testing.T) {
			p := newPlayhouse(t, s)
			want := p.play(nil)
			if len(want.items) == 0 {
				t.Fatal("the unbroken run has no items")
			}
			random := rand.New(rand.NewPCG(1, 2))
			for range rounds {
				for n := random.IntN(step); n < want.appends; n += step {
					kills := []int{n}
					for range random.IntN(4) {
						kills = append(kills, random.IntN(4))
					}
					if p.compare(want, kills); t.Failed() {
						return
					}
				}
			}
		})
	}
}

// FuzzRecovery kills the server of any scene after any numbers of appends.
func FuzzRecovery(f *testing.F) {
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range scenes {
			if !yield(name) {
				return
			}
		}
	})
	for i := range names {
		f.Add(byte(i), []byte{byte(i), 1, 0})
	}
	f.Fuzz(func(t *testing.T, scene byte, kills []byte) {
		p := newPlayhouse(t, scenes[names[int(scene)%len(names)]])
		want := p.play(nil)
		var at []int
		for _, k := range kills[:min(len(kills), 8)] {
			at = append(at, int(k)%(want.appends+1))
		}
		p.compare(want, at)
	})
}

// A scene is a conversation whose last response is killed. Its model plays the last stage
// whose number of outputs it has seen.
type scene struct {
	requests []string // the last is the one that is killed; %s is the id of the one before
	approve  bool     // the last request has an answer for what the one before has asked
	forgets  bool     // a call that is refused, which a crash makes the server forget
	partial  bool     // the client may get its calls before the model has made them all
	stages   []stage
}

type stage struct {
	outputs int // in the context
	turn    turn
}

const (
	ofShell    = `"model":"played","background":true,"tools":[{"type":"shell","environment":{"type":"container_auto"}}]`
	ofClient   = `"model":"played","background":true,"tools":[{"type":"function","name":"add","parameters":{}},{"type":"custom","name":"write"},{"type":"apply_patch"}]`
	ofBoth     = `"model":"played","background":true,"tools":[{"type":"function","name":"add","parameters":{}},{"type":"shell","environment":{"type":"container_auto"}}]`
	ofProgram  = `"model":"played","background":true,"tools":[{"type":"programmatic_tool_calling"},{"type":"shell","environment":{"type":"container_auto"},"allowed_callers":["direct","programmatic"]},{"type":"function","name":"add","allowed_callers":["programmatic"]}]`
	compacted  = `,"context_management":[{"type":"compaction","compact_threshold":1000}]`
	noCommands = `{"commands":[]}`
)

// pieces is a call in pieces of about n characters.
func pieces(index int, name, arguments string, n int) turn {
	var t turn
	for i := 0; i < len(arguments); i += n {
		c := model.Call{Index: index, Arguments: arguments[i:min(i+n, len(arguments))]}
		if i == 0 {
			c.ID, c.Name = fmt.Sprintf("call_%d_%s", index, name), name
		}
		t = append(t, c)
	}
	return t
}

func code(code string) string {
	raw, _ := json.Marshal(map[string]any{"code": code})
	return string(raw)
}

func commands(names ...string) string {
	raw, _ := json.Marshal(map[string]any{"commands": names})
	return string(raw)
}

func text(pieces ...string) turn {
	var t turn
	for _, p := range pieces {
		t = append(t, model.Text{Text: p})
	}
	return t
}

var scenes = map[string]scene{
	"text": {requests: []string{`{` + ofShell + `,"input":"x"}`}, stages: []stage{{0, text("Häl", "lo ", "wörld")}}},
	"reasoning": {requests: []string{`{` + ofShell + `,"input":"x","include":["reasoning.encrypted_content"]}`},
		stages: []stage{
			{0, slices.Concat(turn{model.Thought{Text: "First ", Summary: true}, model.Thought{Text: "this."},
				model.Thought{Text: " That."}}, text("So ", "be it."), pieces(0, "shell", commands("a"), 9))},
			{1, slices.Concat(turn{model.Thought{Text: "Hm"}, model.Thought{Text: "m."}}, text("Done."))}}},
	"refusal": {requests: []string{`{` + ofShell + `,"input":"x"}`},
		stages: []stage{{0, turn{model.Text{Text: "I "}, model.Text{Text: "must: "}, model.Refusal{Text: "No"},
			model.Refusal{Text: "!"}}}}},
	"one call": {requests: []string{`{` + ofShell + `,"input":"x"}`}, stages: []stage{
		{0, pieces(0, "shell", commands("pröbe"), 5)}, {1, text("Done.")}}},
	"several turns": {requests: []string{`{` + ofShell + `,"input":"x"}`}, stages: []stage{
		{0, slices.Concat(text("Now."), pieces(0, "shell", commands("a"), 7))},
		{1, pieces(0, "shell", commands("b"), 50)}, {2, pieces(0, "shell", commands("c"), 3)}, {3, text("Do", "ne.")}}},
	"parallel calls": {requests: []string{`{` + ofShell + `,"input":"x"}`}, stages: []stage{
		{0, slices.Concat(pieces(0, "shell", commands("a"), 9), pieces(1, "shell", commands("b"), 9),
			pieces(2, "shell", commands("c"), 9))}, {3, text("Done.")}}},
	"interleaved calls": {requests: []string{`{` + ofShell + `,"input":"x"}`}, stages: []stage{
		{0, turn{model.Call{Index: 0, ID: "call_a", Name: "shell", Arguments: `{"commands":["a`},
			model.Call{Index: 1, ID: "call_b", Name: "shell", Arguments: `{"commands":["b"`},
			model.Call{Index: 0, Arguments: `"]}`}, model.Call{Index: 1, Arguments: `]}`}}}, {2, text("Done.")}}},
	"many commands": {requests: []string{`{` + ofShell + `,"input":"x"}`}, stages: []stage{
		{0, pieces(0, "shell", commands("a", "b", "long ünicode", "d"), 11)}, {1, text("Done.")}}},
	"clipped output": {requests: []string{`{` + ofShell + `,"input":"x"}`}, stages: []stage{
		{0, pieces(0, "shell", `{"commands":["long one"],"max_output_length":20}`, 30)}, {1, text("Done.")}}},
	"functions": {partial: true, requests: []string{`{` + ofClient + `,"input":"x"}`}, stages: []stage{
		{0, slices.Concat(text("Add."), pieces(0, "add", `{"a":1,"b":2}`, 4), pieces(1, "add", `{"a":3}`, 4))}}},
	"custom tool": {requests: []string{`{` + ofClient + `,"input":"x"}`},
		stages: []stage{{0, pieces(0, "write", `{"input":"some words"}`, 6)}}},
	"patch": {requests: []string{`{` + ofClient + `,"input":"x"}`}, stages: []stage{
		{0, slices.Concat(text("Patch."), pieces(0, "apply_patch", `{"type":"update_file","path":"a","diff":"+x\n+y"}`,
			12))}}},
	"shell and function": {partial: true, requests: []string{`{` + ofBoth + `,"input":"x"}`}, stages: []stage{
		{0, slices.Concat(pieces(0, "add", `{"a":1}`, 4), pieces(1, "shell", commands("a"), 9))}, {1, text("never")}}},
	"invalid calls": {requests: []string{`{` + ofShell + `,"input":"x"}`}, stages: []stage{
		{0, slices.Concat(pieces(0, "shell", noCommands, 6), pieces(1, "shell", commands("a"), 9),
			pieces(2, "shell", `{"commands":["cut","off`, 9))}, {3, text("Done.")}}},
	"refused calls": {forgets: true, requests: []string{`{` + ofBoth + `,"input":"x"}`}, stages: []stage{
		{0, slices.Concat(text("Try."), pieces(0, "nope", `{}`, 4))}, {1, pieces(0, "shell", commands("a"), 9)},
		{2, text("Done.")}}},
	"broken upstream": {requests: []string{`{` + ofShell + `,"input":"x","max_tool_calls":1}`}, stages: []stage{
		{0, slices.Concat(text("Run."), pieces(0, "shell", commands("a"), 4), text("x"), turn{errOnce})},
		{1, text("Done.")}}},
	"broken call": {requests: []string{`{` + ofShell + `,"input":"x","max_tool_calls":1}`}, stages: []stage{
		{0, slices.Insert(pieces(0, "shell", commands("a"), 9), 1, any(errOnce))}, {1, text("Done.")}}},
	"checks": {requests: []string{`{` + ofShell + `,"input":"x","berth":{"checks":{"commands":["check"]}}}`},
		stages: []stage{
			{0, text("Done.")}, {1, pieces(0, "shell", commands("mend"), 9)}, {2, text("Now.")}}},
	"approval": {approve: true, requests: []string{
		`{` + ofShell + `,"input":"x","berth":{"require_approval":"always"}}`,
		`{` + ofShell +
			`,"previous_response_id":"%s","input":[{"type":"mcp_approval_response","approval_request_id":"%s","approve":true}],"berth":{"require_approval":"always"}}`},
		stages: []stage{
			{0, slices.Concat(text("May I?"), pieces(0, "shell", commands("rm a"), 9))}, {1, text("Done.")}}},
	"program": {requests: []string{`{` + ofProgram + `,"input":"x"}`}, stages: []stage{
		{0, slices.Concat(text("Run."), pieces(0, "programmatic_tool_calling", code(`
			const [a, b] = await Promise.all(["a", "b"].map(c => tools.shell({commands: [c]})))
			try { await tools.nope() } catch {}
			const c = await tools.shell({commands: [a.output[0].stdout.length + b.output[0].stdout.length + ""]})
			text([c.output[0].outcome, Date.now() > 0])`), 40), pieces(1, "shell", commands("z"), 9))}, {2, text("Done.")}}},
	"program of the client": {requests: []string{`{` + ofProgram + `,"input":"x"}`}, stages: []stage{
		{0, pieces(0, "programmatic_tool_calling",
			code(`await Promise.all([tools.shell({commands: ["a"]}), tools.add({a: 1}), tools.add({a: 2})])`), 40)},
		{1, text("never")}}},
	"program continued": {approve: true, requests: []string{`{` + ofProgram + `,"input":"x"}`,
		`{` + ofProgram +
			`,"previous_response_id":"%s","input":[{"type":"function_call_output","call_id":"%s","output":"{\"sum\":3}"}]}`},
		stages: []stage{
			{0, pieces(0, "programmatic_tool_calling", code(`
			const before = await tools.shell({commands: ["a"]})
			const {sum} = await tools.add({a: 1})
			const after = await tools.shell({commands: ["b" + sum]})
			text([before.output[0].stdout, sum, after.output[0].stdout])`), 40)}, {1, text("Done.")}}},
	"approval asked": {requests: []string{`{` + ofShell + `,"input":"x","berth":{"require_approval":"always"}}`},
		stages: []stage{
			{0, slices.Concat(text("May I?"), pieces(0, "shell", commands("rm a"), 9))}}},
	"compaction": {requests: []string{`{` + ofShell + compacted + `,"input":[` + user("a", 1500) + `]}`},
		stages: []stage{
			{0, pieces(0, "shell", commands("a"), 9)}, {1, text("Done.")}}},
	"chain": {requests: []string{`{` + ofShell + `,"input":"x"}`, `{` + ofShell +
		`,"input":"y","previous_response_id":"%s"}`}, stages: []stage{
		{0, pieces(0, "shell", commands("a"), 9)}, {1, pieces(0, "shell", commands("b"), 9)}, {2, text("Done.")}}},
}

// summarized precedes the number of outputs in a summary of the playhouse's model.
const summarized = "Outputs so far: "

// errOnce fails the first attempt of a process at a turn.
var errOnce = model.WithRetryAfter(&berth.Error{Code: berth.CodeUpstream, Message: "cut"}, time.Millisecond)

var errDead = errors.New("the process was killed")

// A mortal store is one process's way to the store: after some appends it dies, and
// nothing that the process does is saved any more.
type mortal struct {
	store.Store
	mu    sync.Mutex
	left  int // appends before it dies; negative is any number
	made  int
	dying chan struct{}
}

func (m *mortal) dead() bool {
	select {
	case <-m.dying:
		return true
	default:
		return false
	}
}

func (m *mortal) AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string,
	events []store.Event, body *berth.Response, also ...*store.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 && !m.dead() {
		close(m.dying)
	}
	if m.dead() {
		return errDead
	}
	m.left--
	m.made++
	return m.Store.AppendEvents(ctx, p, id, owner, events, body, also...)
}

func (m *mortal) AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease,
	now time.Time) error {
	if m.dead() {
		return errDead
	}
	return m.Store.AcquireRun(ctx, p, id, lease, now)
}

func (m *mortal) RenewRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease) error {
	if m.dead() {
		return errDead
	}
	return m.Store.RenewRun(ctx, p, id, lease)
}

func (m *mortal) ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error {
	if m.dead() {
		return errDead
	}
	return m.Store.ReleaseRun(ctx, p, id, owner)
}

// A playhouse plays a scene on one database.
type playhouse struct {
	t     *testing.T
	scene scene
	store store.Store

	mu    sync.Mutex
	calls map[string]bool
	ran   []string
}

func newPlayhouse(t *testing.T, s scene) *playhouse {
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return &playhouse{t: t, scene: s, store: st}
}

// A play is what came of a scene.
type play struct {
	status  berth.Status
	items   []string // sorted: calls may be answered before the model has made them all
	ran     []string // commands, sorted
	appends int
}

// compare plays the scene with a process that is killed after some appends, another
// that is killed after some more, and so on.
func (p *playhouse) compare(want play, kills []int) {
	p.t.Helper()
	got := p.play(kills)
	want.appends, got.appends = 0, 0
	if p.scene.partial {
		missing := func(all, some []string) bool {
			return slices.ContainsFunc(some, func(line string) bool { return !slices.Contains(all, line) })
		}
		if got.status != want.status || missing(want.items, got.items) || missing(want.ran, got.ran) ||
			len(got.items) > len(want.items) || len(got.ran) > len(want.ran) {
			p.t.Errorf("killed after %v appends: got %+v, want at most %+v", kills, got, want)
		}
		return
	}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(play{})); diff != "" {
		p.t.Errorf("killed after %v appends (-unbroken +killed):\n%s", kills, diff)
	}
}

func (p *playhouse) play(kills []int) play {
	p.t.Helper()
	p.mu.Lock()
	p.calls, p.ran = map[string]bool{}, nil
	p.mu.Unlock()
	last := len(p.scene.requests) - 1
	var id, asked string
	for i, body := range p.scene.requests {
		if p.scene.approve && i > 0 {
			body = fmt.Sprintf(body, id, asked)
		} else if i > 0 {
			body = fmt.Sprintf(body, id)
		}
		lives := []int{-1}
		if i == last {
			lives = append(slices.Clone(kills), -1)
		}
		r, appends := p.respond(body, lives)
		id = string(r.ID)
		for _, it := range r.Output {
			if it.Type() == berth.ItemApprovalRequest || it.Type() == berth.ItemFunctionCall {
				asked = cmp.Or(it.CallID(), it.ID())
			}
		}
		if i == last {
			p.mu.Lock()
			defer p.mu.Unlock()
			slices.Sort(p.ran)
			return play{r.Status, p.outline(r), p.ran, appends}
		}
	}
	panic("a scene without requests")
}

// respond has one request answered by processes that die after some appends each.
func (p *playhouse) respond(body string, lives []int) (r *berth.Response, appends int) {
	p.t.Helper()
	var id berth.ResponseID
	for _, left := range lives {
		m := &mortal{Store: p.store, left: left, dying: make(chan struct{})}
		j := journal.New(m)
		e := engine.New(engine.Options{Responses: m, Runs: m, Objects: m, Usages: m, Journal: j, Models: p,
			Containers: p, Tools: tool.NewRegistry(standard.Kinds(standard.Options{Containers: p})...),
			Files: fewFiles{},
			Retry: engine.Retry{Patience: time.Second}, Owner: "test", Seal: seal.New([32]byte{1}),
			Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if id == "" {
			var req berth.ResponseRequest
			if err := json.Unmarshal([]byte(body), &req); err != nil {
				p.t.Fatal(err)
			}
			created, err := e.Create(p.t.Context(), caller, &req)
			if err != nil {
				p.t.Fatal(err)
			}
			id = created.ID
		} else if err := e.Recover(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
		p.await(e, j, m, id)
		if err := e.Close(context.Background()); err != nil {
			p.t.Fatal(err)
		}
		appends = m.made
	}
	rec, err := p.store.GetResponse(p.t.Context(), project, id)
	if err != nil {
		p.t.Fatal(err)
	}
	p.checkEvents(rec.Body)
	return rec.Body, appends
}

// await returns when the response has ended or its process has died.
func (p *playhouse) await(e *engine.Engine, j *journal.Journal, m *mortal, id berth.ResponseID) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), stuck)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for ev, err := range j.Follow(ctx, project, id, -1) {
			if err != nil || ev.Type.Final() {
				ended <- err
				return
			}
		}
	}()
	select {
	case <-m.dying:
		cancel()
	case err := <-ended:
		if err != nil {
			p.t.Fatalf("Follow: %v", err)
		}
		e.Settled(id)
	}
}

func (p *playhouse) Route(string) (model.Provider, string, error) { return p, "upstream-name", nil }
func (p *playhouse) Window(string) int                            { return 0 }

// Stream plays the scene's turn for the outputs that the model is shown.
func (p *playhouse) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	outputs := 0
	for _, it := range req.Items {
		if it.Type() == berth.ItemFunctionCallOutput {
			outputs++
		} else if _, seen, ok := strings.Cut(string(it.Raw()), summarized); ok {
			_, _ = fmt.Sscan(seen, &outputs)
		}
	}
	if p.scene.forgets && outputs > 0 && !slices.ContainsFunc(req.Items, func(it berth.Item) bool {
		return strings.Contains(string(it.Raw()), `"nope"`)
	}) {
		outputs++
	}
	var said turn
	for _, s := range p.scene.stages {
		if s.outputs <= outputs {
			said = s.turn
		}
	}
	said = unsaid(said, req.Items)
	if req.ToolChoice.Mode == "none" {
		said = say(summarized + fmt.Sprint(outputs) + " ")
	}
	return func(yield func(model.Delta, error) bool) {
		for _, d := range said {
			if d == errOnce {
				if req.Attempt == 0 { // of each process
					yield(nil, errOnce)
					return
				}
			} else if !yield(d.(model.Delta), nil) {
				return
			}
		}
		yield(model.Finish{Reason: model.FinishStop,
			Usage: berth.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15}}, nil)
	}
}
