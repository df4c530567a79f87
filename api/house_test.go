package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/api/contract"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/approvals"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/command"
	"github.com/berth-run/berth/container/session"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/conversations"
	"github.com/berth-run/berth/download"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	largefiles "github.com/berth-run/berth/files/uploads"
	guestserver "github.com/berth-run/berth/guest/server"
	"github.com/berth-run/berth/idempotency"
	houseclock "github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/scripted"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/prompts"
	"github.com/berth-run/berth/responses"
	"github.com/berth-run/berth/retention"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/schedules"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/sshkeys"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/threads"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/mcp"
	"github.com/berth-run/berth/tool/standard"
	"github.com/berth-run/berth/tool/websearch"
	"github.com/berth-run/berth/traces"
	"github.com/berth-run/berth/usage"
	"github.com/berth-run/berth/vectorstore"
	"github.com/berth-run/berth/webhook"
)

// A house is a whole server. All parts are real except two models, a scripted one and one
// that the test feeds, and the driver, whose guests run in this process.
type house struct {
	t      *testing.T
	url    string
	store  store.Store
	engine *engine.Engine
	fed    fedModel
	stop   context.CancelCauseFunc // of the base context of requests
	token  string                  // of requests; "" without
	record *audit.Log
	reach  egress.Policy // for MCP servers and web pages
	search lateBackend   // of web_search
	opts   api.Options
}

// own describes Berth's own routes.
var own = sync.OnceValue(func() *contract.Document {
	doc, err := contract.Own(api.Document)
	if err != nil {
		panic(err)
	}
	return doc
})

// storeOf returns the store of a house that is being built.
func storeOf(o *api.Options) store.Store { return o.Exchange.Keys.(store.Store) }

// setThreads sets the threads of a house that is being built. Nil is the clock of the system.
func setThreads(o *api.Options, now func() time.Time) {
	o.Rooms.Threads = threads.New(threads.Options{Objects: storeOf(o), Responses: storeOf(o), Engine: o.Engine,
		Journal: o.Journal, Files: o.Files, ContainerFiles: o.Containers.Files(), VectorStores: o.VectorStores,
		Log: o.Exchange.Log, Now: now})
}

// newHouse starts a server. change may change the API's options; rules add models.
func newHouse(t *testing.T, change func(*api.Options), rules ...model.Rule) *house {
	return newHouseWith(t, nil, change, rules...)
}

// newHouseWith is newHouse with tools beside the standard ones.
func newHouseWith(t *testing.T, kinds []tool.Kind, change func(*api.Options), rules ...model.Rule) *house {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	check(t, err)
	record, err := audit.Open(t.TempDir(), log)
	check(t, err)
	holds := &retention.Holds{Objects: db, Audit: record, Clock: houseclock.System}
	st := retention.NewGuard(db, holds)
	terms := retention.New(retention.Options{Objects: st, Audit: record, Holds: holds, Log: log})
	var opts api.Options
	uploads := files.New(files.Options{Life: func(ctx context.Context, p berth.ProjectID) (time.Duration, error) {
		return terms.Life(ctx, p, berth.RetainedFiles)
	}, Store: st, Contents: blobtest.New(t), Quota: func(ctx context.Context,
		p berth.ProjectID, bytes int64) error {
		if opts.Exchange.Quota == nil {
			return nil
		}
		return opts.Exchange.Quota.Store(ctx, p, bytes)
	}})
	large := largefiles.New(largefiles.Options{Objects: st, Contents: blobtest.New(t), Seal: seal.New([32]byte{1}),
		Files: uploads, Quota: func(ctx context.Context, p berth.ProjectID, bytes int64) error {
			if opts.Exchange.Quota == nil {
				return nil
			}
			return opts.Exchange.Quota.Store(ctx, p, bytes)
		}})
	hooks := webhook.New(st, nil, log)
	jobs := batch.New(batch.Options{Objects: st, Files: uploads, Ended: hooks.BatchEnded, Log: log})
	stored := skills.New(skills.Options{Objects: st, Contents: blobtest.New(t), Seal: seal.New([32]byte{1}), Log: log,
		Quota: func(ctx context.Context, p berth.ProjectID, bytes int64) error {
			if opts.Exchange.Quota == nil {
				return nil
			}
			return opts.Exchange.Quota.Store(ctx, p, bytes)
		}})
	bare := t.TempDir()
	guests := &guestDriver{t: t, boxes: map[string]*box{}}
	snapshots := snapshot.New(snapshot.Options{Objects: st, Contents: blobtest.New(t), Seal: seal.New([32]byte{1})})
	volumes, err := volume.New(volume.Options{Dir: t.TempDir(), Objects: st, Seal: seal.New([32]byte{1}), Audit: record,
		Plain: true})
	check(t, err)
	running := func(ctx context.Context, p berth.ProjectID) (int, error) {
		if opts.Exchange.Quota == nil {
			return -1, nil
		}
		return opts.Exchange.Quota.Containers(ctx, p)
	}
	users := enduser.New(enduser.Options{Objects: st, Audit: record, Log: log, Held: holds.EndUser, Sources: enduser.Sources{
		User: []string{"header:X-User", "metadata:user", "safety_identifier", "user"},
		Chat: []string{"header:X-Chat", "prompt_cache_key"}}, Computer: berth.ComputerChat})
	keeper, err := container.New(container.Options{Subjects: users.Ensure, Held: holds.Check, Audit: record, Quota: running, Volumes: volumes, Store: st,
		Driver: guests, OpenFile: uploads.Open, Log: log, Seal: seal.New([32]byte{1}),
		Snapshots: snapshots, Skills: stored, Template: func(string) (container.Template, error) {
			return container.Template{Template: sandbox.Template{Digest: "sha256:none", Path: bare}}, nil
		}})
	check(t, err)
	check(t, keeper.Start(t.Context()))
	h := &house{t: t, store: st, record: record, fed: fedModel{words: make(chan string), asked: &atomic.Pointer[model.Request]{}}}
	rules = append(rules, model.Rule{Match: scripted.Name, Provider: scripted.Provider{}},
		model.Rule{Match: "vendor/fed", Provider: h.fed})
	models, err := model.NewRouter(log, rules...)
	check(t, err)
	upstreams := engine.NewForwarder(engine.ForwarderOptions{Models: models, Usages: st, Log: log})
	var vectorModel vectorstore.Embedder
	if slices.ContainsFunc(rules, func(r model.Rule) bool { return r.Match == embeddingModel }) {
		vectorModel = houseEmbedder{upstreams}
	}
	vectors := vectorstore.New(vectorstore.Options{Objects: st, Files: uploads, Log: log, Text: readPlain,
		Embedder: vectorModel,
		Quota: func(ctx context.Context, p berth.ProjectID, bytes int64) error {
			if opts.Exchange.Quota == nil {
				return nil
			}
			return opts.Exchange.Quota.Store(ctx, p, bytes)
		}})
	events := journal.New(st)
	events.AtEnd(users.AtEnd)
	h.engine = engine.New(engine.Options{Responses: st, Runs: st, Usages: st, Objects: st, Journal: events,
		Models: models, Containers: keeper.Provider(),
		Tools: tool.NewRegistry(append(standard.Kinds(standard.Options{Containers: keeper.Access(),
			Kernels: keeper.Access(), Editors: keeper.Access(), VectorStores: vectors,
			MCP: mcp.Options{Containers: keeper.Access(), Gate: &egress.Gate{Policy: &h.reach},
				Timeout: mcpTimeout, Log: log},
			WebSearch: websearch.Options{Backend: &h.search, Fetcher: download.New(&egress.Gate{Policy: &h.reach}, maxWebPage),
				Markdown: markdownOf, Text: readPage, Log: log}}), kinds...)...),
		Files: uploads, Fetcher: letters{}, Forwarder: upstreams, Owner: "test", Log: log, EndUsers: users,
		Stores: terms.Stores, Held: holds.Check})
	events.AtEnd(hooks.AtEnd)
	opts = api.Options{Exchange: exchange.Options{Keys: st, Repeats: idempotency.New(st), Log: log},
		Rooms: api.Rooms{Responses: responses.New(st), Conversations: conversations.New(h.engine, st),
			Prompts: prompts.New(st), Completions: completions.New(st), Traces: traces.New(st), Usage: usage.New(st),
			EndUsers: users, Retention: terms},
		Models: api.ModelOptions{Models: models},
		Engine: h.engine, Journal: events, Webhooks: hooks, Files: uploads, Uploads: large, Skills: stored,
		Batches: jobs, Schedules: schedules.New(schedules.Options{Objects: st, Audit: record, Log: log}),
		Containers: keeper, Snapshots: snapshots, Volumes: volumes, VectorStores: vectors,
		Projects: project.New(project.Options{Objects: st, Keys: st, Audit: record, Held: holds.Any}),
		Bundles: bundle.New(bundle.Options{Responses: st, Containers: st, Objects: st, Engine: h.engine,
			Journal: events, ContainerService: keeper, Snapshots: snapshots, Files: uploads, SpoolDir: t.TempDir(),
			Version: "1"}),
		Audit: record, Status: func(context.Context) *berth.ServerStatus {
			return &berth.ServerStatus{Pools: []berth.PoolStatus{}, Upstreams: []berth.Upstream{},
				Disk: []berth.DiskStatus{}}
		},
		SSH:       api.SSHOptions{Keys: sshkeys.New(sshkeys.Options{Objects: st, Audit: record})},
		Approvals: approvals.New(approvals.Options{Objects: st, Audit: record}),
		Preview:   api.PreviewOptions{Seal: seal.New([32]byte{1})}, Build: berth.Build{Version: "1"},
		MCP: api.MCPOptions{Sessions: session.New(session.Options{Containers: keeper, Log: log, Snapshots: true}),
			Commands: command.New(command.Options{Containers: keeper.Access()})}}
	setThreads(&opts, nil)
	if change != nil {
		change(&opts)
	}
	h.opts = opts
	srv := httptest.NewUnstartedServer(contract.Watch(t, api.New(opts), own()))
	base, stop := context.WithCancelCause(context.Background())
	h.stop = stop
	srv.Config.BaseContext = func(net.Listener) context.Context { return base }
	srv.Start()
	h.url = srv.URL
	worker, stopWorker := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { opts.Batches.Run(worker) })
	working.Go(func() { opts.Schedules.Run(worker) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		check(t, h.engine.Close(ctx))
		stopWorker()
		working.Wait()
		stop(errors.New("the test is over"))
		srv.Close()
		opts.MCP.Sessions.Close()
		check(t, keeper.Close())
		check(t, record.Close())
		check(t, st.Close())
	})
	return h
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// letters is a Fetcher that returns a letter for every URL.
type letters struct{}

func (letters) Fetch(_ context.Context, url string) (string, []byte, error) {
	return path.Base(url), []byte("Dear " + url), nil
}

// embeddingModel is the model that embeds the texts of vector stores, if the rules have it.
const embeddingModel = "vectors"

type houseEmbedder struct{ upstreams *engine.Forwarder }

func (houseEmbedder) Model() string { return embeddingModel }

func (e houseEmbedder) Embed(ctx context.Context, p berth.ProjectID, texts []string) ([][]float32, error) {
	return e.upstreams.Embed(ctx, p, embeddingModel, texts)
}

// key makes an API key of a project and uses it from now on.
func (h *house) key(secret string, p berth.ProjectID) {
	h.t.Helper()
	h.token = secret
	check(h.t, h.store.CreateKey(h.t.Context(), &berth.Key{ID: berth.KeyID(berth.NewID(berth.PrefixKey)), Project: p,
		Hash: sha256.Sum256([]byte(secret)), CreatedAt: 1}))
}

// send sends a request; body may be nil, a string of JSON, or a reader, whose
// type is that of the header "Content-Type".
func (h *house) send(ctx context.Context, method, path string, body any, header ...string) *http.Response {
	h.t.Helper()
	var in io.Reader
	kind := "application/json"
	switch body := body.(type) {
	case string:
		in = strings.NewReader(body)
	case io.Reader:
		in, kind = body, header[0]
	}
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, in)
	check(h.t, err)
	req.Header.Set("Content-Type", kind)
	if strings.HasPrefix(path, "/v1/assistants") || strings.HasPrefix(path, "/v1/threads") {
		req.Header.Set("OpenAI-Beta", "assistants=v2")
	}
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	resp, err := http.DefaultClient.Do(req)
	check(h.t, err)
	h.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// call sends a request and decodes its answer, which must have this status.
func (h *house) call(status int, method, path string, body any, header ...string) object {
	h.t.Helper()
	resp := h.send(h.t.Context(), method, path, body, header...)
	raw, err := io.ReadAll(resp.Body)
	check(h.t, err)
	if resp.StatusCode != status {
		h.t.Fatalf("%s %s: got %d %s, want %d", method, path, resp.StatusCode, raw, status)
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		h.t.Fatalf("%s %s: got %s: %v", method, path, raw, err)
	}
	return o
}

// An object is an answer in JSON.
type object map[string]any

// at returns the value at a path of names and indexes, or nil.
func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

func (o object) id() string { s, _ := o["id"].(string); return s }

// stream opens a stream of events.
func (h *house) stream(ctx context.Context, method, path string, body any) *sse.Reader {
	h.t.Helper()
	resp := h.send(ctx, method, path, body)
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "text/event-stream; charset=utf-8" {
		raw, _ := io.ReadAll(resp.Body)
		h.t.Fatalf("%s %s: got %d %s %s, want a stream", method, path, resp.StatusCode, got, raw)
	}
	return sse.NewReader(resp.Body, 0)
}

// rest reads a stream to its end.
func (h *house) rest(r *sse.Reader) []sse.Event {
	h.t.Helper()
	var out []sse.Event
	for ev, err := range r.Events() {
		check(h.t, err)
		out = append(out, ev)
	}
	return out
}

// until reads a stream up to the first event of a type and returns that.
func (h *house) until(r *sse.Reader, kind string) object {
	h.t.Helper()
	for {
		ev, err := r.Next()
		check(h.t, err)
		if ev.Type == kind {
			var o object
			check(h.t, json.Unmarshal(ev.Data, &o))
			return o
		}
	}
}

// A fedModel answers with the words that it is fed, and ends when it is fed "".
type fedModel struct {
	words chan string
	asked *atomic.Pointer[model.Request] // the latest
}

func (m fedModel) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	m.asked.Store(req)
	return func(yield func(model.Delta, error) bool) {
		for {
			select {
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			case word := <-m.words:
				if word == "" {
					yield(model.Finish{Reason: model.FinishStop}, nil)
					return
				}
				if !yield(model.Text{Text: word}, nil) {
					return
				}
			}
		}
	}
}

// A guestDriver runs sandboxes whose guests are in this process.
type guestDriver struct {
	t     *testing.T
	mu    sync.Mutex
	boxes map[string]*box
}

type box struct {
	socket string
	stop   context.CancelFunc
}

func (d *guestDriver) Create(_ context.Context, spec sandbox.Spec) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boxes[spec.ID] = &box{}
	return nil
}

func (d *guestDriver) Start(_ context.Context, id string) error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	dir := d.t.TempDir()
	g, err := guestserver.New(guestserver.Options{User: me.Username, WorkDir: filepath.Join(dir, "data"),
		StateDir: filepath.Join(dir, "state")})
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	d.t.Cleanup(stop)
	d.mu.Lock()
	d.boxes[id] = &box{socket: l.Addr().String(), stop: stop}
	d.mu.Unlock()
	go g.Serve(ctx, l)
	return nil
}

func (d *guestDriver) Dial(ctx context.Context, id string) (net.Conn, error) {
	d.mu.Lock()
	b := d.boxes[id]
	d.mu.Unlock()
	if b == nil {
		return nil, sandbox.ErrNotFound
	}
	return new(net.Dialer).DialContext(ctx, "unix", b.socket)
}

func (d *guestDriver) Stats(_ context.Context, id string) (sandbox.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.boxes[id] == nil {
		return sandbox.Stats{}, sandbox.ErrNotFound
	}
	return sandbox.Stats{State: sandbox.StateRunning, Memory: 1 << 20, CPU: time.Second}, nil
}

func (d *guestDriver) Destroy(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.boxes[id]; b != nil && b.stop != nil {
		b.stop()
	}
	delete(d.boxes, id)
	return nil
}

func (d *guestDriver) List(context.Context) ([]string, error) { return nil, nil }
func (*guestDriver) Pause(context.Context, string) error      { return nil }
func (*guestDriver) Resume(context.Context, string) error     { return nil }
func (*guestDriver) Features() sandbox.Features {
	return sandbox.Features{Isolation: "none", Network: true, Pause: true, Mounts: true}
}

// upload is a form with a file and perhaps other fields, in pairs.
func upload(name string, content io.Reader, fields ...string) (body io.Reader, kind string) {
	return multipartOf("file", name, content, fields...)
}

// multipartOf is upload for a file in another part of the form.
func multipartOf(part, name string, content io.Reader, fields ...string) (body io.Reader, kind string) {
	var head, tail bytes.Buffer
	head.WriteString("--edge\r\nContent-Disposition: form-data; name=\"" + part + "\"; filename=\"" + name +
		"\"\r\n\r\n")
	for i := 0; i < len(fields); i += 2 {
		tail.WriteString("\r\n--edge\r\nContent-Disposition: form-data; name=\"" + fields[i] + "\"\r\n\r\n" +
			fields[i+1])
	}
	tail.WriteString("\r\n--edge--\r\n")
	return io.MultiReader(&head, content, &tail), "multipart/form-data; boundary=edge"
}

// A clock shows the time that it is set to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
