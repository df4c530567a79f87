package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/idempotency"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// A counter is a handler that answers with the number of its calls, or calls a function of
// the test.
type counter struct {
	mu   sync.Mutex
	n    int
	does func(x *Exchange, r *http.Request, n int) error // nil writes n
}

func (c *counter) handle(x *Exchange, r *http.Request, caller berth.Caller) error {
	c.mu.Lock()
	c.n++
	n := c.n
	c.mu.Unlock()
	if c.does != nil {
		return c.does(x, r, n)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	return x.JSON(http.StatusCreated, map[string]int{"n": n})
}

func database(t *testing.T) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// counting is a server with one route, POST /v1/things/{thing}.
func counting(t *testing.T, objects store.Objects, keys store.Keys, c *counter) http.Handler {
	h, _ := countingServer(t, objects, keys, c)
	return h
}

func countingServer(t *testing.T, objects store.Objects, keys store.Keys, c *counter) (http.Handler, *Server) {
	s := New(Options{Keys: keys, Repeats: idempotency.New(objects), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Limits: Limits{MaxBody: 1 << 20}})
	mux := http.NewServeMux()
	rt := Route{Method: "POST", Path: "/v1/things/{thing}", Handle: c.handle, Permission: berth.MayRun, Traits: ReadsQuery}
	mux.HandleFunc(rt.Pattern(), s.Route(rt))
	return s.Handler(func(x *Exchange, r *http.Request) { mux.ServeHTTP(x, r) }), s
}

func post(h http.Handler, path, key, kind, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:5"
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", kind)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const asJSON = "application/json"

func TestIdempotency(t *testing.T) {
	db := database(t)
	keys := &keyring{}
	keys.add("sk-a", "proj_a")
	keys.add("sk-b", "proj_b")
	a, b := []string{"Authorization", "Bearer sk-a"}, []string{"Authorization", "Bearer sk-b"}
	c := &counter{}
	s := counting(t, db, keys, c)
	tests := []struct {
		name, path, key, body string
		who                   []string
		status                int
		want                  string
	}{
		{"the first", "/v1/things/1", "k", `{"x":1}`, a, 201, `{"n":1}`},
		{"again", "/v1/things/1", "k", `{"x":1}`, a, 201, `{"n":1}`},
		{"another body", "/v1/things/1", "k", `{"x":2}`, a, 400, `idempotency_key_reuse`},
		{"another query", "/v1/things/1?y=1", "k", `{"x":1}`, a, 400, `idempotency_key_reuse`},
		{"another path", "/v1/things/2", "k", `{"x":1}`, a, 201, `{"n":2}`},
		{"another key", "/v1/things/1", "l", `{"x":1}`, a, 201, `{"n":3}`},
		{"another project", "/v1/things/1", "k", `{"x":2}`, b, 201, `{"n":4}`},
		{"the first once more", "/v1/things/1", "k", `{"x":1}`, a, 201, `{"n":1}`},
		{"without a key", "/v1/things/1", "", `{"x":1}`, a, 201, `{"n":5}`},
		{"without a key again", "/v1/things/1", "", `{"x":1}`, a, 201, `{"n":6}`},
		{"a key that is too long", "/v1/things/1", strings.Repeat("k", 256), `{}`, a, 400,
			"at most 255 printable ASCII characters"},
		{"a key of other characters", "/v1/things/1", "k\x80", `{}`, a, 400, "ASCII"},
		{"without an API key", "/v1/things/1", "k", `{"x":1}`, nil, 401, "API key"},
	}
	for _, tt := range tests {
		w := post(s, tt.path, tt.key, asJSON, tt.body, tt.who...)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
		if w.Code == 201 && w.Header().Get("Content-Type") != asJSON {
			t.Errorf("%s: got %s", tt.name, w.Header().Get("Content-Type"))
		}
	}
	// After a restart of the server.
	if w := post(counting(t, db, keys, c), "/v1/things/1", "k", asJSON, `{"x":1}`, a...); w.Body.String() != `{"n":1}` {
		t.Errorf("after a restart: got %s, want the first answer", w.Body)
	}
	// A day later.
	expired, err := db.ExpiredObjects(t.Context(), idempotency.Kind, time.Now().Add(idempotency.Life+time.Second), 100)
	if err != nil || len(expired) != 4 {
		t.Fatalf("got %d objects that expire within a day, %v, want 4", len(expired), err)
	}
	for _, o := range expired {
		if _, err := db.UpdateObject(t.Context(), o.Project, o.ObjectKey, func(o *store.Object) error {
			o.ExpiresAt = 1
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if w := post(s, "/v1/things/1", "k", asJSON, `{"x":9}`, a...); w.Body.String() != `{"n":7}` {
			t.Errorf("after a day: got %s, want a new answer", w.Body)
		}
	}
}

// Failures are not stored.
func TestIdempotencyOfFailures(t *testing.T) {
	c := &counter{does: func(x *Exchange, r *http.Request, n int) error {
		switch n {
		case 1:
			return errors.New("disk on fire")
		case 2:
			return berth.Errorf(berth.CodeRateLimited, "later")
		case 3:
			panic("oh")
		case 4:
			return x.JSON(http.StatusBadGateway, struct{}{})
		case 5:
			_ = x.JSON(http.StatusOK, "half an answer")
			return errors.New("and then none")
		}
		return x.JSON(http.StatusOK, n)
	}}
	s := counting(t, database(t), &keyring{}, c)
	for i, want := range []int{500, 429, 500, 502, 200, 200, 200} {
		w := post(s, "/v1/things/1", "k", asJSON, `{}`)
		if w.Code != want || i >= 5 && w.Body.String() != "6" {
			t.Errorf("attempt %d: got %d %s, want %d", i+1, w.Code, w.Body, want)
		}
	}
	if c.n != 6 {
		t.Errorf("got %d calls, want 6", c.n)
	}
}

// Of concurrent requests with the same key, one runs and the others get its answer.
func TestIdempotencyAtOnce(t *testing.T) {
	goOn := make(chan struct{})
	c := &counter{does: func(x *Exchange, _ *http.Request, n int) error {
		<-goOn
		return x.JSON(http.StatusOK, n)
	}}
	s, server := countingServer(t, database(t), &keyring{}, c)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if w := post(s, "/v1/things/1", "k", asJSON, `{}`); w.Body.String() != "1" {
				t.Errorf("got %d %s, want the answer of the first", w.Code, w.Body)
			}
		})
	}
	close(goOn)
	wg.Wait()
	if len(server.once.attempts.live) != 0 {
		t.Errorf("%d attempts are left", len(server.once.attempts.live))
	}
}

// A client that disconnects while it waits for another request stops waiting.
func TestIdempotencyLeaving(t *testing.T) {
	var a attempts
	done, err := a.start(t.Context(), attempt{project: "proj_a"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, err := a.start(ctx, attempt{project: "proj_a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	done()
	if done, err := a.start(ctx, attempt{project: "proj_a"}); err != nil {
		t.Errorf("got %v", err)
	} else {
		done()
	}
}

// boundedBody is a form with a file; boundaries differ as clients make them.
func boundedBody(boundary, name, content string) (kind, body string) {
	return "multipart/form-data; boundary=" + boundary,
		fmt.Sprintf("--%[1]s\r\nContent-Disposition: form-data; name=\"file\"; filename=%[2]q\r\n"+
			"Content-Type: application/octet-stream\r\n\r\n%[3]s\r\n--%[1]s\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nvision\r\n--%[1]s--\r\n",
			boundary, name, content)
}

// Forms with different boundaries are the same, and a form is not held in memory.
func TestIdempotencyOfForms(t *testing.T) {
	c := &counter{}
	s := counting(t, database(t), &keyring{}, c)
	large := strings.Repeat("large ", 1<<19) // more than a JSON body may have
	tests := []struct {
		boundary, name, content string
		status                  int
		want                    string
	}{
		{"one", "a.txt", large, 201, `{"n":1}`},
		{"two", "a.txt", large, 201, `{"n":1}`},
		{"one", "a.txt", large + "r", 400, "idempotency_key_reuse"},
		{"one", "b.txt", large, 400, "idempotency_key_reuse"},
	}
	for _, tt := range tests {
		kind, body := boundedBody(tt.boundary, tt.name, tt.content)
		w := post(s, "/v1/things/1", "k", kind, body)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("boundary %s, file %s of %d bytes: got %d %s, want %d %s", tt.boundary, tt.name, len(tt.content),
				w.Code, w.Body, tt.status, tt.want)
		}
	}
	// A handler that does not read its form leaves no goroutine.
	c.does = func(*Exchange, *http.Request, int) error { return berth.Invalid("file", "no") }
	kind, body := boundedBody("one", "a.txt", large)
	if w := post(s, "/v1/things/2", "k", kind, body); w.Code != 400 {
		t.Errorf("got %d", w.Code)
	}
	kind, body = boundedBody("one", "a.txt", large)
	c.does = nil
	if w := post(s, "/v1/things/2", "k", kind, body[:len(body)-20]); w.Code != 201 {
		t.Errorf("a handler that takes half a form: got %d %s", w.Code, w.Body)
	}
	if w := post(s, "/v1/things/2", "k", kind, body); w.Code != 201 || w.Body.String() != `{"n":4}` {
		t.Errorf("after half a form, whose answer is not stored: got %d %s", w.Code, w.Body)
	}
}

// A stream is not buffered, and an answer that is too large is not stored.
func TestIdempotencyOfStreamsAndLargeAnswers(t *testing.T) {
	c := &counter{does: func(x *Exchange, _ *http.Request, n int) error {
		x.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		x.WriteHeader(200)
		fmt.Fprintf(x, "data: %d\n\n", n)
		return http.NewResponseController(x).Flush()
	}}
	s := counting(t, database(t), &keyring{}, c)
	for n := 1; n <= 2; n++ {
		w := post(s, "/v1/things/1", "k", asJSON, `{}`)
		if !w.Flushed || w.Body.String() != fmt.Sprintf("data: %d\n\n", n) {
			t.Errorf("got %q, flushed %v", w.Body, w.Flushed)
		}
	}
	c.does = func(x *Exchange, _ *http.Request, n int) error {
		_, err := x.Write(bytes.Repeat([]byte{byte(n)}, idempotencyAnswer+1))
		return err
	}
	for n := 3; n <= 4; n++ {
		w := post(s, "/v1/things/2", "k", asJSON, `{}`)
		if w.Body.Len() != idempotencyAnswer+1 || w.Body.Bytes()[0] != byte(n) {
			t.Errorf("got %d bytes of %d", w.Body.Len(), w.Body.Bytes()[0])
		}
	}
}

// If the store fails, requests are refused, because they could run twice.
func TestIdempotencyFailsClosed(t *testing.T) {
	db := database(t)
	c := &counter{}
	s := counting(t, db, &keyring{}, c)
	db.Close()
	if w := post(s, "/v1/things/1", "k", asJSON, `{}`); w.Code != 500 || c.n != 0 {
		t.Errorf("got %d %s after %d calls, want 500 and none", w.Code, w.Body, c.n)
	}
}

// A stored answer cannot be read without the key.
func TestStoredAnswersAreSealed(t *testing.T) {
	db := database(t)
	s, server := countingServer(t, db, &keyring{}, &counter{does: func(x *Exchange, _ *http.Request, _ int) error {
		return x.JSON(200, "canary")
	}})
	post(s, "/v1/things/1", "the key", asJSON, `{}`)
	refs, err := db.ExpiredObjects(t.Context(), idempotency.Kind, time.Now().Add(2*idempotency.Life), 2)
	if err != nil || len(refs) != 1 {
		t.Fatalf("got %d objects, %v", len(refs), err)
	}
	k, err := server.once.records.Find(t.Context(), refs[0].Project, refs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := newSealer("the key").open(k.Answer); string(got) != `"canary"` {
		t.Errorf("with the key: got %s, %v", got, err)
	}
	if got, err := newSealer("a key").open(k.Answer); err == nil || bytes.Contains(k.Answer, []byte("canary")) {
		t.Errorf("without the key: got %s of %s", got, k.Answer)
	}
}
