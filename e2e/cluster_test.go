package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/internal/s3test"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// A fleet is a cluster of servers behind a proxy that sends each request to the next one.
type fleet struct {
	t       *testing.T
	servers []*server
	db      *pgtest.Server
	bucket  *s3test.Server
	url     string // of the proxy
	counter string // a file to which commands append a line each
}

// newFleet starts three servers with one database and one bucket. absence is how long the
// containers of a silent server wait for its return; more is added to the configuration.
func newFleet(t *testing.T, absence string, more ...string) *fleet {
	t.Helper()
	return newFleetOf(t, "unsafe-local", absence, more...)
}

// newFleetOf is newFleet with a driver.
func newFleetOf(t *testing.T, driver, absence string, more ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, db: pgtest.Start(t), bucket: s3test.Start(t), counter: filepath.Join(t.TempDir(), "counter")}
	key := []byte(strings.Repeat("5e", 32) + "\n")
	for range 3 {
		config := fmt.Sprintf("driver: %s\nstore: %s\nblobs: %s\ncluster: {listen: %q, lease: 2s, absence: %s}\n%s",
			driver, f.db.URL(), f.bucket.Bucket("berth"), freeport.Addr(t), absence, strings.Join(more, ""))
		s := prepareServer(t, t.TempDir(), config)
		if err := os.WriteFile(filepath.Join(s.state, "seal.key"), key, 0o600); err != nil {
			t.Fatal(err)
		}
		s.addr = freeport.Addr(t) // it returns to the same address
		s.start()
		f.servers = append(f.servers, s)
	}
	t.Cleanup(f.close)
	f.url = f.proxy()
	return f
}

func (f *fleet) close() {
	for _, s := range f.servers { // the first deletes the containers of all
		s.close()
	}
}

// proxy starts the proxy. It tries the next server if one refuses connections.
func (f *fleet) proxy() string {
	var turn atomic.Int64
	next := roundTripper(func(r *http.Request) (resp *http.Response, err error) {
		for range f.servers {
			to, perr := url.Parse(f.servers[int(turn.Add(1))%len(f.servers)].url)
			if perr != nil {
				return nil, perr
			}
			out := r.Clone(r.Context())
			out.URL.Host, out.Host = to.Host, to.Host
			if r.GetBody != nil {
				if out.Body, err = r.GetBody(); err != nil {
					return nil, err
				}
			}
			if resp, err = http.DefaultTransport.RoundTrip(out); err == nil {
				return resp, nil
			}
		}
		return nil, err
	})
	proxy := &httputil.ReverseProxy{Transport: next, FlushInterval: -1, Rewrite: func(pr *httputil.ProxyRequest) {
		pr.Out.URL.Scheme = "http"
		if body, err := io.ReadAll(pr.In.Body); err == nil && len(body) > 0 {
			pr.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
			pr.Out.Body, _ = pr.Out.GetBody()
		}
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}}
	srv := httptest.NewServer(proxy)
	f.t.Cleanup(srv.Close)
	return srv.URL
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// call sends a request to a server, or to the proxy, and decodes the answer.
func call(ctx context.Context, method, url, key string, body, answer any) (status int, err error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, in)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err
	}
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	if answer != nil {
		err = json.Unmarshal(text, answer)
	}
	return resp.StatusCode, err
}

// patiently repeats a call while servers cannot do it.
func patiently(ctx context.Context, method, url, key string, body, answer any) error {
	for {
		status, err := call(ctx, method, url, key, body, answer)
		if err == nil || status != 0 && status < 500 && status != http.StatusTooManyRequests {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// A memberAnswer is a response as these tests read it.
type memberAnswer struct {
	ID     string
	Status string
	Error  any
	Output []struct {
		Type   string
		Output json.RawMessage
	}
	Tools []struct {
		Environment struct {
			ContainerID string `json:"container_id"`
		}
	}
}

func (a *memberAnswer) container() string {
	if len(a.Tools) == 0 {
		return ""
	}
	return a.Tools[0].Environment.ContainerID
}

// task is a request in the background for a container and commands, one turn each.
func task(commands ...string) map[string]any {
	return map[string]any{"model": "scripted", "background": true, "input": fence(commands...),
		"tools": []any{map[string]any{"type": "shell", "environment": map[string]any{"type": "container_auto"}}}}
}

// follow follows the stream of a response at a URL of servers, which may end and be resumed,
// until its last event. It returns an error if a number is missing or repeated.
func follow(ctx context.Context, at, id string, started func()) (last string, err error) {
	next := int64(0)
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			fmt.Sprintf("%s/v1/responses/%s?stream=true&starting_after=%d", at, id, next-1), nil)
		if err != nil {
			return "", err
		}
		if next == 0 {
			r.URL.RawQuery = "stream=true"
		}
		resp, err := http.DefaultClient.Do(r)
		if err == nil && resp.StatusCode == http.StatusOK {
			lines := bufio.NewScanner(resp.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				data, ok := strings.CutPrefix(lines.Text(), "data: ")
				var ev struct {
					Type   string
					Number *int64 `json:"sequence_number"`
				}
				if !ok || json.Unmarshal([]byte(data), &ev) != nil || ev.Number == nil || ev.Type == "error" {
					continue
				}
				if *ev.Number != next {
					resp.Body.Close()
					return "", fmt.Errorf("%s: event %d follows %d", id, *ev.Number, next-1)
				}
				next++
				if started != nil {
					started()
					started = nil
				}
				switch ev.Type {
				case "response.completed", "response.failed", "response.incomplete", "response.cancelled":
					resp.Body.Close()
					return ev.Type, nil
				}
			}
		}
		if err == nil {
			resp.Body.Close()
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return "", fmt.Errorf("%s: the stream has no end after event %d: %w", id, next-1, context.Cause(ctx))
}

// lines returns the lines that commands have written.
func (f *fleet) lines() map[string]int {
	f.t.Helper()
	content, err := os.ReadFile(f.counter)
	if err != nil {
		f.t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(content)) {
		counts[strings.TrimSpace(line)]++
	}
	return counts
}

func (f *fleet) verify() {
	f.t.Helper()
	first, rest := f.servers[0], []string{}
	for _, s := range f.servers[1:] {
		rest = append(rest, filepath.Join(s.state, "audit"))
	}
	verify := []string{"audit", "verify", "--cluster", "--state", first.state}
	if out, errs, err := first.berth(append(verify, rest...)...); err != nil ||
		strings.Count(out, "valid and signed") != len(f.servers) {
		f.t.Errorf("audit verify --cluster: %v: %s%s", err, out, errs)
	}
	// The record of a server that was not named is missed.
	if out, _, err := first.berth(append(verify, rest[1:]...)...); err == nil || strings.Count(out, "is missing") != 1 {
		f.t.Errorf("audit verify --cluster without a record: %v: %s", err, out)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestClusterDivides creates a response on one server, follows it on a second and cancels it on a
// third. Requests for its container work on every server.
func TestClusterDivides(t *testing.T) {
	f := newFleet(t, "1m")
	ctx := within(t, 3*time.Minute)
	a, b, c := f.servers[0], f.servers[1], f.servers[2]
	var r memberAnswer
	if _, err := call(ctx, "POST", a.url+"/v1/responses", "", task("echo first > note", "sleep 600"), &r); err != nil {
		t.Fatal(err)
	}
	started, last := make(chan struct{}), make(chan string, 1)
	go func() {
		end, err := follow(ctx, b.url, r.ID, func() { close(started) })
		if err != nil {
			t.Error(err)
		}
		last <- end
	}()
	receive(t, started, "the second server has an event")
	container := r.container()
	var ran struct{ Stdout string }
	for ctx.Err() == nil && ran.Stdout != "first\n" { // the command may not have run yet, nor its container exist
		err := patiently(ctx, "POST", c.url+"/v1/containers/"+container+"/exec", "",
			map[string]any{"command": "cat note"}, &ran)
		if err != nil && !strings.Contains(err.Error(), "404 Not Found") {
			t.Fatal(err)
		}
	}
	if _, err := call(ctx, "POST", c.url+"/v1/responses/"+r.ID+"/cancel", "", nil, &r); err != nil ||
		r.Status != "cancelled" {
		t.Errorf("cancelled on the third server: %s, %v", r.Status, err)
	}
	if end := receive(t, last, "the stream ends"); end != "response.cancelled" && end != "response.incomplete" &&
		end != "response.failed" {
		t.Logf("the last event is %s", end)
	}

	// A chain continues in its container, whichever server the next request reaches, stored or not.
	for i, s := range []*server{b, c, a} {
		next := task("cat note")
		next["previous_response_id"], next["background"], next["store"] = r.ID, false, i > 0
		var got memberAnswer
		if _, err := call(ctx, "POST", s.url+"/v1/responses", "", next, &got); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(got.Output); got.container() != container || !strings.Contains(jsonText(got), "first") {
			t.Errorf("server %d: container %s, %s", i, got.container(), text)
		}
	}

	// A repeated request is executed once, also if it reaches another server.
	var ids []string
	for _, s := range f.servers {
		var got memberAnswer
		once := task("echo once >> " + f.counter)
		once["background"] = false
		if _, err := call(ctx, "POST", s.url+"/v1/responses", "key-1", once, &got); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got.ID)
	}
	if f.lines()["once"] != 1 || len(slices.Compact(ids)) != 1 {
		t.Errorf("a repeated request: %v, ids %v", f.lines(), ids)
	}
	if _, err := call(ctx, "DELETE", b.url+"/v1/containers/"+container, "", nil, nil); err != nil {
		t.Error(err)
	}
	if status, err := call(ctx, "GET", c.url+"/v1/containers/"+container, "", nil, nil); status != http.StatusNotFound {
		t.Errorf("a deleted container: %v", err)
	}
	f.verify()
}

func jsonText(a memberAnswer) string {
	var all strings.Builder
	for _, it := range a.Output {
		all.Write(it.Output)
	}
	return all.String()
}

// TestClusterKilled kills servers under load and starts them again. Every response ends, every
// command runs once, and every stream is complete.
func TestClusterKilled(t *testing.T) {
	f := newFleet(t, "5m")
	count, kills, pause := 40, 2, 3*time.Second
	if longtest.Enabled() {
		count, kills, pause = 200, 1000, 5*time.Second // as long as the load lasts
	}
	ctx := within(t, 10*time.Minute)
	var load sync.WaitGroup
	slots, ended := make(chan struct{}, 10), make(chan struct{})
	for i := range count {
		load.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			f.one(ctx, i)
		})
	}
	go func() {
		load.Wait()
		close(ended)
	}()
	for n := range kills {
		select {
		case <-time.After(pause):
		case <-ended:
		}
		s := f.servers[n%len(f.servers)]
		if n == 1 { // a rolling restart
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			if err := s.cmd.Wait(); err != nil {
				t.Errorf("a server did not stop in order: %v", err)
			}
		} else {
			s.kill()
		}
		s.start()
		select {
		case <-ended:
			n = kills
		default:
		}
		if n == kills {
			break
		}
	}
	<-ended
	counts := f.lines()
	for i := range count {
		for _, step := range steps(i) {
			if counts[step] != 1 {
				t.Errorf("%s ran %d times", step, counts[step])
			}
		}
	}
	f.verify()
}

// steps are the lines that the commands of a response write.
func steps(i int) (all []string) {
	for n := range i % 4 { // some responses have no commands
		all = append(all, fmt.Sprintf("response-%d-step-%d", i, n))
	}
	return all
}

// one creates a response and follows it to its end.
func (f *fleet) one(ctx context.Context, i int) {
	var commands []string
	for _, step := range steps(i) {
		commands = append(commands, "sleep 0.5; echo "+step+" >> "+f.counter)
	}
	req := task(commands...)
	if len(commands) == 0 {
		req = map[string]any{"model": "scripted", "background": true, "input": strings.Repeat("word ", 200)}
	}
	var r memberAnswer
	if err := patiently(ctx, "POST", f.url+"/v1/responses", fmt.Sprint("response-", i), req, &r); err != nil {
		f.t.Error(err)
		return
	}
	last, err := follow(ctx, f.url, r.ID, nil)
	if err != nil || last != "response.completed" {
		f.t.Errorf("response %d (%s): last event %q, %v", i, r.ID, last, err)
	}
	if err := patiently(ctx, "GET", f.url+"/v1/responses/"+r.ID, "", nil, &r); err != nil || r.Status != "completed" {
		f.t.Errorf("response %d: %s, %v, %v", i, r.Status, r.Error, err)
	}
}

// TestClusterLoses loses a server for good. Its responses end on the others, its containers end
// with a reason, and their chains go on in new ones. When it returns, it gives up what was ended.
func TestClusterLoses(t *testing.T) {
	f := newFleet(t, "3s")
	ctx := within(t, 3*time.Minute)
	a, b := f.servers[0], f.servers[1]
	var r memberAnswer
	if _, err := call(ctx, "POST", a.url+"/v1/responses", "", task("echo begun >> "+f.counter+"; sleep 600"),
		&r); err != nil {
		t.Fatal(err)
	}
	a.waitUntil("the command runs", func() bool { _, err := os.Stat(f.counter); return err == nil })
	a.kill()
	last, err := follow(ctx, b.url, r.ID, nil)
	if err != nil || last != "response.completed" {
		t.Errorf("the response of a lost server: last event %q, %v", last, err)
	}
	var lost struct {
		Status string
		Berth  struct{ Reason string }
	}
	if _, err := call(ctx, "GET", b.url+"/v1/containers/"+r.container(), "", nil, &lost); err != nil ||
		lost.Status != "expired" || lost.Berth.Reason != "host" {
		t.Errorf("the container of a lost server: %+v, %v", lost, err)
	}
	next := task("echo again")
	next["previous_response_id"], next["background"] = r.ID, false
	var got memberAnswer
	if _, err := call(ctx, "POST", b.url+"/v1/responses", "", next, &got); err != nil || cmp.Or(got.container(),
		r.container()) == r.container() {
		t.Errorf("the chain of a lost container: container %s, %v", got.container(), err)
	}
	if n := f.lines()["begun"]; n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	a.start()
	a.waitUntil("the lost server removes the sandbox", func() bool {
		left, _ := filepath.Glob(filepath.Join(a.state, "local", "*", r.container()+"*"))
		return len(left) == 0
	})
	f.verify()
}
