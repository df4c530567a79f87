package batch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/batch"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const mine berth.ProjectID = "proj_mine"

// A house has a real store and files. Its requests are executed by the test.
type house struct {
	t     *testing.T
	store *mortal
	files *files.Service
	opts  batch.Options

	mu  sync.Mutex
	ran map[string]int // executions by custom id
}

// mortal is a store that dies after some writes.
type mortal struct {
	store.Store
	mu    sync.Mutex
	left  int  // writes before its death; negative: none
	after bool // it dies after the last write, not before it
	die   func()
	saved map[string]bool // lines with a stored result
}

var errDead = errors.New("the process is dead")

// write runs a write, unless the store is dead.
func (m *mortal) write(do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		return errDead
	}
	m.left--
	if m.left == 0 {
		m.die()
		if m.after {
			_ = do()
		}
		return errDead
	}
	return do()
}

func (m *mortal) CreateObjects(ctx context.Context, p berth.ProjectID, objects ...*store.Object) error {
	return m.write(func() error {
		err := m.Store.CreateObjects(ctx, p, objects...)
		for _, o := range objects {
			if err == nil && o.Kind == store.KindBatchLine {
				m.saved[o.Parent+"/"+o.ID] = true
			}
		}
		return err
	})
}

func (m *mortal) UpdateObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey,
	change func(*store.Object) error) (o *store.Object, err error) {
	err = m.write(func() error {
		o, err = m.Store.UpdateObject(ctx, p, key, change)
		return err
	})
	return o, err
}

func (m *mortal) CreateFile(ctx context.Context, p berth.ProjectID, f *berth.File, key []byte) error {
	return m.write(func() error { return m.Store.CreateFile(ctx, p, f, key) })
}

func (m *mortal) DeleteObject(ctx context.Context, p berth.ProjectID, key store.ObjectKey) error {
	return m.write(func() error { return m.Store.DeleteObject(ctx, p, key) })
}

func newHouse(t *testing.T) *house {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	check(t, err)
	t.Cleanup(func() {
		db.Close()
	})
	h := &house{t: t, store: &mortal{Store: db, left: -1, saved: map[string]bool{}}, ran: map[string]int{}}
	h.files = files.New(files.Options{Store: h.store, Contents: blobtest.New(t)})
	h.opts = batch.Options{Objects: h.store, Files: h.files, Log: slog.New(slog.DiscardHandler)}
	return h
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a service, which is a process, until stop is called or the store dies.
func (h *house) start(do batch.Execute) (s *batch.Service, stop func()) {
	s = batch.New(h.opts)
	s.Handle(do)
	ctx, cancel := context.WithCancel(context.Background())
	h.store.die = cancel
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx) })
	return s, func() {
		cancel()
		wg.Wait()
	}
}

// execute answers a request immediately, and counts it.
func (h *house) execute(_ context.Context, _ berth.Caller, it batch.Execution) batch.Answer {
	h.mu.Lock()
	h.ran[it.CustomID]++
	h.mu.Unlock()
	h.store.mu.Lock()
	if h.store.saved[it.Once] {
		h.t.Errorf("request %s runs again after its result was stored", it.CustomID)
	}
	h.store.mu.Unlock()
	if strings.HasSuffix(it.CustomID, "bad") {
		return batch.Answer{Status: 400, RequestID: "req_1", Body: []byte(`{"error":{"message":"bad"}}`)}
	}
	return batch.Answer{Status: 200, RequestID: "req_1",
		Body: []byte(`{"usage":{"input_tokens":2,"output_tokens":1,"total_tokens":3}}`)}
}

// input stores an input file with a line for each custom id.
func (h *house) input(ids ...string) berth.FileID {
	var text strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&text,
			`{"custom_id":%q,"method":"POST","url":"/v1/responses","body":{"model":"m","input":"x"}}`+"\n", id)
	}
	return h.file(text.String())
}

func (h *house) file(text string) berth.FileID {
	h.t.Helper()
	f, err := h.files.Create(h.t.Context(), mine, files.CreateRequest{Filename: "in.jsonl", Purpose: "batch"},
		strings.NewReader(text))
	check(h.t, err)
	return f.ID
}

func (h *house) create(s *batch.Service, input berth.FileID) *berth.Batch {
	h.t.Helper()
	b, err := s.Create(h.t.Context(), berth.Caller{Project: mine}, batch.CreateRequest{Endpoint: "/v1/responses",
		InputFileID: input})
	check(h.t, err)
	return b
}

// until waits until a batch has one of the statuses.
func (h *house) until(s *batch.Service, id berth.BatchID, statuses ...berth.BatchStatus) *berth.Batch {
	h.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var b *berth.Batch
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); <-tick.C {
		var err error
		b, err = s.Get(h.t.Context(), mine, id)
		check(h.t, err)
		for _, status := range statuses {
			if b.Status == status {
				return b
			}
		}
	}
	h.t.Fatalf("batch is %+v, want one of %v", b, statuses)
	return nil
}

// A line of an output or error file.
type line struct {
	ID       string `json:"id"`
	CustomID string `json:"custom_id"`
	Response *struct {
		StatusCode int             `json:"status_code"`
		RequestID  string          `json:"request_id"`
		Body       json.RawMessage `json:"body"`
	} `json:"response"`
	Error *struct{ Code, Message string } `json:"error"`
}

// lines reads a file by custom id. Nil is an absent file.
func (h *house) lines(id *berth.FileID) map[string]line {
	h.t.Helper()
	all := map[string]line{}
	if id == nil {
		return all
	}
	in, f, err := h.files.Open(h.t.Context(), mine, *id)
	check(h.t, err)
	defer in.Close()
	if f.Purpose != "batch_output" {
		h.t.Errorf("the file has the purpose %s", f.Purpose)
	}
	text, err := io.ReadAll(in)
	check(h.t, err)
	for row := range strings.Lines(string(text)) {
		var l line
		check(h.t, json.Unmarshal([]byte(row), &l))
		if _, twice := all[l.CustomID]; twice {
			h.t.Errorf("%s is in the file twice", l.CustomID)
		}
		all[l.CustomID] = l
	}
	return all
}

// leftovers fails the test if results or jobs are left.
func (h *house) leftovers(id berth.BatchID) {
	h.t.Helper()
	rows, _, err := h.store.ListObjects(h.t.Context(), mine, store.KindBatchLine, string(id), store.Page{Limit: 10})
	check(h.t, err)
	jobs, _, err := h.store.ListObjects(h.t.Context(), mine, store.KindBatchJob, "", store.Page{Limit: 10})
	check(h.t, err)
	if len(rows)+len(jobs) > 0 {
		h.t.Errorf("got %d results and %d jobs left", len(rows), len(jobs))
	}
}

func ids(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("request-%d", i)
		if i%5 == 4 {
			list[i] += "-bad"
		}
	}
	return list
}

func TestBatch(t *testing.T) {
	h := newHouse(t)
	s, stop := h.start(h.execute)
	b := h.create(s, h.input(ids(50)...))
	b = h.until(s, b.ID, berth.BatchCompleted, berth.BatchFailed)
	if b.RequestCounts != (berth.BatchRequestCounts{Total: 50, Completed: 40, Failed: 10}) ||
		b.Usage.TotalTokens != 120 || *b.Model != "m" ||
		b.InProgressAt == nil || b.FinalizingAt == nil || b.CompletedAt == nil || b.FailedAt != nil {
		t.Errorf("got %+v", b)
	}
	out, failed := h.lines(b.OutputFileID), h.lines(b.ErrorFileID)
	for _, id := range ids(50) {
		l, bad := out[id], strings.HasSuffix(id, "bad")
		if bad {
			l = failed[id]
		}
		if l.Response == nil || l.Error != nil || (l.Response.StatusCode != 200) != bad ||
			l.Response.RequestID != "req_1" || h.ran[id] != 1 || !strings.HasPrefix(l.ID, "batch_req_") {
			t.Errorf("%s ran %d times: %+v", id, h.ran[id], l)
		}
	}
	h.clean()
	stop()
	h.leftovers(b.ID)
}

// The process dies before or after each of its writes in turn. No request runs again after its
// result was stored, none is lost, and none is in the files twice.
func TestBatchSurvivesDeath(t *testing.T) {
	t.Run("before", func(t *testing.T) { surviveDeaths(t, false) })
	t.Run("after", func(t *testing.T) { surviveDeaths(t, true) })
}

func surviveDeaths(t *testing.T, after bool) {
	all := ids(6)
	for deaths := 1; ; deaths++ {
		h := newHouse(t)
		h.store.after = after
		s := batch.New(h.opts)
		b := h.create(s, h.input(all...))
		h.store.left = deaths
		_, stop := h.start(h.execute)
		tick := time.NewTicker(time.Millisecond)
		dead := false
		for ended := false; !dead && !ended; <-tick.C {
			h.store.mu.Lock()
			dead = h.store.left == 0
			h.store.mu.Unlock()
			jobs, _, err := h.store.ListObjects(t.Context(), mine, store.KindBatchJob, "", store.Page{Limit: 1})
			check(t, err)
			ended = len(jobs) == 0
		}
		tick.Stop()
		stop()
		h.store.left = -1
		s, stop = h.start(h.execute)
		b = h.until(s, b.ID, berth.BatchCompleted)
		out, failed := h.lines(b.OutputFileID), h.lines(b.ErrorFileID)
		if len(out) != 5 || len(failed) != 1 || b.RequestCounts != (berth.BatchRequestCounts{Total: 6, Completed: 5,
			Failed: 1}) || b.Usage.TotalTokens != 15 {
			t.Errorf("death at write %d: got %d and %d lines, %+v", deaths, len(out), len(failed), b)
		}
		h.clean()
		stop()
		h.leftovers(b.ID)
		list, _, err := h.files.List(t.Context(), mine, "batch_output", store.Page{Limit: 10})
		if err != nil || len(list) != 2 {
			t.Errorf("death at write %d: got files %v, %v, want two", deaths, list, err)
		}
		if !dead {
			if deaths < 12 {
				t.Errorf("only %d writes were seen", deaths)
			}
			return
		}
	}
}

// clean waits until no job is left.
func (h *house) clean() {
	h.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-tick.C {
		jobs, _, err := h.store.ListObjects(h.t.Context(), mine, store.KindBatchJob, "", store.Page{Limit: 1})
		check(h.t, err)
		if len(jobs) == 0 {
			return
		}
	}
}

// A cancelled batch interrupts its requests, and states which were not executed.
func TestCancel(t *testing.T) {
	h := newHouse(t)
	h.opts.Concurrency = 2
	entered := make(chan string, 10)
	s, stop := h.start(func(ctx context.Context, c berth.Caller, it batch.Execution) batch.Answer {
		if it.CustomID == "request-0" {
			return h.execute(ctx, c, it)
		}
		entered <- it.CustomID
		<-ctx.Done()
		return batch.Answer{Status: 503}
	})
	defer stop()
	b := h.create(s, h.input("request-0", "request-1", "request-2", "request-3"))
	<-entered
	<-entered
	b, err := s.Cancel(t.Context(), mine, b.ID)
	check(t, err)
	if b.Status != berth.BatchCancelling || b.CancellingAt == nil {
		t.Errorf("got %+v", b)
	}
	b = h.until(s, b.ID, berth.BatchCancelled)
	out, failed := h.lines(b.OutputFileID), h.lines(b.ErrorFileID)
	if len(out) != 1 || len(failed) != 3 || failed["request-2"].Error.Code != "batch_cancelled" ||
		failed["request-2"].Response != nil ||
		b.RequestCounts != (berth.BatchRequestCounts{Total: 4, Completed: 1, Failed: 3}) {
		t.Errorf("got %v, %v, %+v", out, failed, b)
	}
	if b, err = s.Cancel(t.Context(), mine, b.ID); err != nil || b.Status != berth.BatchCancelled {
		t.Errorf("cancel again: got %+v, %v", b, err)
	}
	done := h.create(s, h.input("request-0"))
	h.until(s, done.ID, berth.BatchCompleted)
	if _, err := s.Cancel(t.Context(), mine, done.ID); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("cancel of a completed batch: got %v", err)
	}
	if _, err := s.Cancel(t.Context(), "proj_theirs", done.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("cancel by another project: got %v", err)
	}
}

// After 24 hours a batch ends with the results that it has, also if no process ran in that time.
func TestExpire(t *testing.T) {
	h := newHouse(t)
	entered := make(chan struct{}, 10)
	s, stop := h.start(func(ctx context.Context, c berth.Caller, it batch.Execution) batch.Answer {
		if it.CustomID == "request-0" {
			return h.execute(ctx, c, it)
		}
		entered <- struct{}{}
		<-ctx.Done()
		return batch.Answer{Status: 503}
	})
	b := h.create(s, h.input("request-0", "request-1"))
	<-entered
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		if b, err := s.Get(t.Context(), mine, b.ID); err != nil || b.RequestCounts.Completed == 1 {
			check(t, err)
			tick.Stop()
			break
		}
	}
	stop()
	h.opts.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	s, stop = h.start(h.execute)
	defer stop()
	b = h.until(s, b.ID, berth.BatchExpired)
	if out, failed := h.lines(b.OutputFileID), h.lines(b.ErrorFileID); len(out) != 1 || len(failed) != 1 ||
		failed["request-1"].Error.Code != "batch_expired" ||
		b.ExpiredAt == nil || h.ran["request-1"] != 0 {
		t.Errorf("got %v, %v, %+v", out, failed, b)
	}
}

// A request waits as long as a limit requires it to, and is repeated some times after a failure.
func TestRetry(t *testing.T) {
	h := newHouse(t)
	s, stop := h.start(func(ctx context.Context, c berth.Caller, it batch.Execution) batch.Answer {
		h.mu.Lock()
		h.ran[it.CustomID]++
		n := h.ran[it.CustomID]
		h.mu.Unlock()
		switch {
		case it.CustomID == "limited" && n < 10:
			return batch.Answer{Status: 429, RetryAfter: time.Millisecond}
		case it.CustomID == "broken":
			return batch.Answer{Status: 502, RetryAfter: time.Millisecond, Body: []byte("<html>")}
		case it.CustomID == "exhausted":
			return batch.Answer{Status: 429, Final: true, Body: []byte("{}")}
		}
		return batch.Answer{Status: 200, Body: []byte("{}")}
	})
	defer stop()
	b := h.create(s, h.input("limited", "broken", "exhausted"))
	b = h.until(s, b.ID, berth.BatchCompleted)
	out, failed := h.lines(b.OutputFileID), h.lines(b.ErrorFileID)
	if len(out) != 1 || h.ran["limited"] != 10 || h.ran["broken"] != 4 || h.ran["exhausted"] != 1 ||
		string(failed["broken"].Response.Body) != `"\u003chtml\u003e"` {
		t.Errorf("got %v, %v, %v", out, failed, h.ran)
	}
}

// No more requests run than allowed, and a project's batches leave places to another's.
func TestConcurrency(t *testing.T) {
	h := newHouse(t)
	h.opts.Concurrency = 4
	entered, leave := make(chan berth.ProjectID, 100), make(chan struct{})
	s, stop := h.start(func(ctx context.Context, c berth.Caller, it batch.Execution) batch.Answer {
		entered <- c.Project
		select {
		case <-leave:
		case <-ctx.Done():
			return batch.Answer{Status: 503}
		}
		return batch.Answer{Status: 200, Body: []byte("{}")}
	})
	defer stop()
	b := h.create(s, h.input(ids(20)...))
	for range 4 {
		<-entered
	}
	f, err := h.files.Create(t.Context(), "proj_theirs", files.CreateRequest{Filename: "in.jsonl", Purpose: "batch"},
		strings.NewReader(`{"custom_id":"theirs","method":"POST","url":"/v1/responses","body":{"model":"m"}}`))
	check(t, err)
	other, err := s.Create(t.Context(), berth.Caller{Project: "proj_theirs"},
		batch.CreateRequest{Endpoint: "/v1/responses", InputFileID: f.ID})
	check(t, err)
	for other.Status == berth.BatchValidating {
		other, err = s.Get(t.Context(), "proj_theirs", other.ID)
		check(t, err)
	}
	select {
	case p := <-entered:
		t.Fatalf("a fifth request of %s runs", p)
	default:
	}
	theirs := false
	for i := 0; i < 10 && !theirs; i++ { // places that become free go to both projects
		leave <- struct{}{}
		theirs = <-entered == "proj_theirs"
	}
	if !theirs {
		t.Error("the other project waits for the whole batch of the first")
	}
	close(leave)
	h.until(s, b.ID, berth.BatchCompleted)
}

// Lines that run concurrently have a bounded size together, and shorter lines run beside a long one.
func TestLinesInMemory(t *testing.T) {
	h := newHouse(t)
	var text strings.Builder
	padding := strings.Repeat("x", 9<<20)
	for n := range 5 {
		fmt.Fprintf(&text,
			`{"custom_id":"%d","method":"POST","url":"/v1/responses","body":{"model":"m","input":%q}}`+"\n", n, padding)
	}
	long, short := h.file(text.String()), h.input("a", "b")
	var mu sync.Mutex
	now, most := 0, 0
	beside := make(chan struct{})
	s, stop := h.start(func(ctx context.Context, c berth.Caller, it batch.Execution) batch.Answer {
		if len(it.Body) < 1<<20 {
			if it.CustomID == "a" {
				close(beside)
			}
			return h.execute(ctx, c, it)
		}
		mu.Lock()
		now += len(it.Body)
		most = max(most, now)
		mu.Unlock()
		select {
		case <-beside:
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		now -= len(it.Body)
		return h.execute(ctx, c, it)
	})
	defer stop()
	all := []*berth.Batch{h.create(s, long), h.create(s, short)}
	for _, b := range all {
		if b = h.until(s, b.ID, berth.BatchCompleted); b.RequestCounts.Completed != b.RequestCounts.Total {
			t.Errorf("batch %+v", b)
		}
	}
	if most > batch.MaxLine {
		t.Errorf("lines of %d bytes run at once", most)
	}
}

// The end of a batch is reported before its job is deleted, and again after a failed report.
func TestReportedEnd(t *testing.T) {
	h := newHouse(t)
	reports := make(chan berth.BatchStatus, 10)
	failures := 1
	h.opts.Ended = func(_ context.Context, p berth.ProjectID, b *berth.Batch) error {
		if _, err := h.store.GetObject(t.Context(), p, store.ObjectKey{Kind: store.KindBatchJob,
			ID: string(b.ID)}); err != nil {
			t.Errorf("the job of a batch whose end is reported: %v", err)
		}
		reports <- b.Status
		if failures--; failures >= 0 {
			return errDead
		}
		return nil
	}
	s, stop := h.start(h.execute)
	h.create(s, h.input("a"))
	first := <-reports
	stop() // which ends the wait before the next attempt
	_, stop = h.start(h.execute)
	defer stop()
	if second := <-reports; first != berth.BatchCompleted || second != first {
		t.Errorf("reported %s and %s", first, second)
	}
}
