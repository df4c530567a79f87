package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth/sandbox"
)

// lying returns a driver of an API server that answers as it likes.
func lying(t *testing.T, answer http.HandlerFunc) *Driver {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	to, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return lyingAt(t, to)
}

func lyingAt(t *testing.T, to *url.URL) *Driver {
	c := newClient(identity{server: to, tls: &tls.Config{}, namespace: "n", token: &token{fixed: "the-token"}})
	t.Cleanup(c.close)
	return &Driver{names: naming{instance: "0123456789ab"}, client: c, agents: agents{client: c},
		log: slog.New(slog.DiscardHandler)}
}

// The answers of an API server that lies end, and take bounded memory.
func TestHostileServer(t *testing.T) {
	var pages atomic.Int64
	endless := func(start, piece string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", typeJSON)
			_, err := io.WriteString(w, start)
			for more := strings.Repeat(piece, 64<<10/len(piece)); err == nil && r.Context().Err() == nil; {
				_, err = io.WriteString(w, more)
			}
		}
	}
	list := func(d *Driver) error {
		_, _, err := d.client.listPods(t.Context(), "a=b")
		return err
	}
	watch := func(d *Driver) error {
		return d.client.watchPods(t.Context(), url.Values{}, "1", func(*pod, bool) bool { return false })
	}
	get := func(d *Driver) error { _, err := d.client.getPod(t.Context(), "x"); return err }
	for name, attack := range map[string]struct {
		answer http.HandlerFunc
		do     func(d *Driver) error
		want   string
	}{
		"an endless Pod":          {endless(`{"metadata":{"name":"`, "a"), get, "unexpected EOF"},
		"endless white space":     {endless("", " "), get, "EOF"},
		"an endless page":         {endless(`{"items":[`, `{"metadata":{"name":"a"}},`), list, "unexpected EOF"},
		"an endless event":        {endless(`{"type":"ADDED","object":{"metadata":{"name":"`, "a"), watch, "more than"},
		"endless space in events": {endless("", " "), watch, "more than"},
		"an endless refusal": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", typeJSON)
			w.WriteHeader(http.StatusConflict)
			endless(`{"message":"`, "a")(w, r)
		}, get, "409"},
		"a deep Pod": {endless(`{"status":`, "["), get, "exceeded max depth"},
		"pages without end": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"metadata":{"continue":"%d"},"items":[]}`, pages.Add(1))
		}, list, "pages"},
		"the same page": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"metadata":{"continue":"again"},"items":[{"metadata":{"name":"a"}}]}`)
		}, list, "same page"},
		"objects without end": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"metadata":{"continue":"%d"},"items":[%s{"metadata":{"name":"a"}}]}`, pages.Add(1),
				strings.Repeat(`{"metadata":{"name":"a"}},`, 50_000))
		}, list, "objects"},
	} {
		if err := attack.do(lying(t, attack.answer)); err == nil || !strings.Contains(err.Error(), attack.want) {
			t.Errorf("%s: got %.200v, want an error with %q", name, err, attack.want)
		}
	}
}

// The words of an API server that lies are no page of the log, and give a terminal no orders.
func TestHostileWords(t *testing.T) {
	d := lying(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", typeJSON)
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(status{Message: "\x1b[2J\n\u009b" + strings.Repeat("a", 500_000)})
	})
	_, err := d.client.getPod(t.Context(), "x")
	if err == nil || len(err.Error()) > 2*wordsLimit || strings.ContainsAny(err.Error(), "\x1b\n\u009b") {
		t.Errorf("got %.100q of %d bytes", err, len(err.Error()))
	}
}

// A name of an object that a list has made up leads to no other path of the API.
func TestHostileNames(t *testing.T) {
	var elsewhere []string
	d := lying(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			var list partialList
			for _, name := range []string{"../secrets/x", "..", "", "x?dryRun=All", "%2e%2e", "a/exec", "A", "x\n",
				"../../../n/pods/x", strings.Repeat("a", 300), "good.name-1"} {
				list.Items = append(list.Items, partialObject{meta{Name: name, UID: "1"}})
			}
			_ = json.NewEncoder(w).Encode(list)
			return
		}
		elsewhere = append(elsewhere, r.Method+" "+r.URL.String())
		_, _ = io.WriteString(w, "{}")
	})
	n, err := d.sweep(t.Context(), "a=b", nil)
	if err != nil || n != 1 || len(elsewhere) != 1 || elsewhere[0] != "DELETE /api/v1/namespaces/n/pods/good.name-1" {
		t.Errorf("sweep: %d objects, %v, requests %q", n, err, elsewhere)
	}
}

// The token stays with the API server, which cannot lead it elsewhere.
func TestRedirectGetsNoToken(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent elsewhere, Authorization %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{elsewhere.URL, strings.TrimPrefix(elsewhere.URL, "http:"),
			strings.Replace(elsewhere.URL, "http:", "ws:", 1)} {
			d := lying(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer the-token" {
					t.Errorf("%s %s: Authorization %q", r.Method, r.URL, r.Header.Get("Authorization"))
				}
				w.Header().Set("Location", to)
				w.WriteHeader(code)
			})
			if _, err := d.client.getPod(t.Context(), "x"); err == nil {
				t.Errorf("%d to %s: the Pod was read", code, to)
			}
			if _, _, err := d.client.listPods(t.Context(), "a=b"); err == nil {
				t.Errorf("%d to %s: Pods were listed", code, to)
			}
			if _, err := d.client.exec(t.Context(), "x", "true"); err == nil {
				t.Errorf("%d to %s: a command was run", code, to)
			}
		}
	}
}

// A relay that never says that it has connected, floods, or speaks in other channels ends with its caller.
func TestHostileRelay(t *testing.T) {
	for name, message := range map[string][]byte{"silence": nil, "other words": []byte("\x01no\n"),
		"errors": append([]byte{stderr}, bytes.Repeat([]byte("x"), 30_000)...), "no message": {},
		"an unknown channel":          append([]byte{9}, bytes.Repeat([]byte("x"), 30_000)...),
		"an end that is no JSON":      []byte("\x03{"),
		"an end with another verdict": []byte("\x03{\"status\":\"Success\"}")} {
		ctx, cancel := context.WithCancel(t.Context())
		id := "cntr_x"
		d := lying(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/exec") {
				_, _ = io.WriteString(w, `{"metadata":{"name":"x"},"status":{"phase":"Running"}}`)
				return
			}
			ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
			if err != nil {
				return
			}
			defer ws.CloseNow()
			for n := 0; n < 2000 && message != nil; n++ {
				if ws.Write(r.Context(), websocket.MessageBinary, message) != nil {
					return
				}
			}
			cancel() // the caller has waited long enough
			<-ws.CloseRead(r.Context()).Done()
		})
		conn, err := d.Dial(ctx, id)
		if err == nil {
			conn.Close()
			t.Errorf("%s: connected", name)
		} else if len(err.Error()) > 4*wordsLimit {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		cancel()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An API server that ends each watch at once is not asked without pause.
func TestWatchThatEnds(t *testing.T) {
	for name, event := range map[string]string{"nothing": "", "an event": `{"type":"ADDED","object":{}}`,
		"an error": `{"type":"ERROR","object":{"code":410}}`, "no JSON": "x"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			requests := 0
			d := lyingAt(t, &url.URL{Scheme: "http", Host: "x"})
			d.client.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				body := `{"metadata":{"resourceVersion":"1"},"spec":{},"status":{"phase":"Pending"}}`
				if r.URL.Query().Has("watch") {
					body = event
				}
				if requests++; requests > 1000 {
					cancel()
					return nil, context.Canceled
				}
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {typeJSON}},
					Body: io.NopCloser(strings.NewReader(body))}, nil
			})
			d.watch(ctx)
			if requests > 100 {
				t.Errorf("%s: %d requests in a minute", name, requests)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			requests = 0
			err := d.client.await(ctx, "x", func(*pod) (bool, error) { return false, nil })
			if !errors.Is(err, context.DeadlineExceeded) || requests > 100 {
				t.Errorf("%s: await: %v, %d requests in a minute", name, err, requests)
			}
		})
	}
}

// What the figures of a program in a sandbox and the state of its Pod say does not become a panic or a negative use.
func TestHostileState(t *testing.T) {
	for _, state := range []string{`null`, `{}`, `[]`, `{"metadata":null,"status":null}`,
		`{"status":{"phase":"` + strings.Repeat("x", 100_000) + `"}}`,
		`{"metadata":{"deletionTimestamp":"0001-01-01T00:00:00Z","annotations":{"a":"b"}},"status":{"phase":"Running"}}`,
		`{"metadata":{"ownerReferences":[{}]},"status":{"conditions":[{},{"type":"DisruptionTarget","status":"True"}]}}`,
		`{"status":{"containerStatuses":[{"name":"sandbox","state":{"terminated":{"exitCode":-9,"message":"\u001b[2J"}}}]}}`,
	} {
		d := lying(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, state) })
		got, err := d.Stats(t.Context(), "cntr_x")
		if len(got.Detail) > 2*wordsLimit || strings.Contains(got.Detail, "\x1b") || err != nil &&
			(len(err.Error()) > 2*wordsLimit || errors.Is(err, sandbox.ErrNotFound)) {
			t.Errorf("%.100s: got %+v, %.200v", state, got, err)
		}
	}
}
