package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A line is a client's connection to a house.
type line struct {
	h    *house
	conn *websocket.Conn
}

// connect opens a WebSocket with the house's key.
func (h *house) connect() *line {
	h.t.Helper()
	header := http.Header{}
	if h.token != "" {
		header.Set("Authorization", "Bearer "+h.token)
	}
	conn, _, err := websocket.Dial(h.t.Context(), h.url+"/v1/responses", &websocket.DialOptions{HTTPHeader: header})
	check(h.t, err)
	conn.SetReadLimit(-1)
	h.t.Cleanup(func() { conn.CloseNow() })
	return &line{h, conn}
}

func (l *line) send(event string) {
	l.h.t.Helper()
	check(l.h.t, l.conn.Write(l.h.t.Context(), websocket.MessageText, []byte(event)))
}

// next returns the next event.
func (l *line) next() object {
	l.h.t.Helper()
	ctx, cancel := context.WithTimeout(l.h.t.Context(), 30*time.Second)
	defer cancel()
	kind, data, err := l.conn.Read(ctx)
	check(l.h.t, err)
	var o object
	if err := json.Unmarshal(data, &o); kind != websocket.MessageText || err != nil {
		l.h.t.Fatalf("got the %v message %s", kind, data)
	}
	return o
}

// until returns the first event of a type and all events before it.
func (l *line) until(kind string) (last object, before []object) {
	l.h.t.Helper()
	for {
		ev := l.next()
		if ev.at("type") == kind {
			return ev, before
		}
		if ev.at("type") == "error" {
			l.h.t.Fatalf("got %v, want %s", ev, kind)
		}
		before = append(before, ev)
	}
}

// ask sends a request, by default to the scripted model, and returns the final response.
func (l *line) ask(fields string) object {
	l.h.t.Helper()
	if !strings.Contains(fields, `"model":`) {
		fields = `"model":"scripted",` + fields
	}
	l.send(`{"type":"response.create",` + fields + `}`)
	ev, _ := l.until("response.completed")
	return ev.at("response").(map[string]any)
}

// wantError expects the error event for a request.
func (l *line) wantError(status int, code, param any) object {
	l.h.t.Helper()
	ev := l.next()
	if ev.at("type") != "error" || ev.at("status") != float64(status) || ev.at("error", "code") != code ||
		ev.at("error", "param") != param {
		l.h.t.Errorf("got %v, want an error with status %d, code %v, param %v", ev, status, code, param)
	}
	if id, _ := ev.at("error", "headers", "x-request-id").(string); !strings.HasPrefix(id, "req_") {
		l.h.t.Errorf("got error %v, want it to name its request", ev)
	}
	return ev
}

// wantClosed reads to the end of the connection.
func (l *line) wantClosed(code websocket.StatusCode) {
	l.h.t.Helper()
	ctx, cancel := context.WithTimeout(l.h.t.Context(), 30*time.Second)
	defer cancel()
	for {
		_, data, err := l.conn.Read(ctx)
		if err == nil {
			l.h.t.Logf("before its end: %s", data)
			continue
		}
		if got := websocket.CloseStatus(err); got != code {
			l.h.t.Errorf("got %v, want the connection closed with %d", err, code)
		}
		return
	}
}

// eventually waits until the store has a response in the given state; nil means absent.
func (h *house) eventually(id string, is func(*store.Response) bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	for {
		rec, err := h.store.GetResponse(ctx, berth.DefaultProject, berth.ResponseID(id))
		if errors.Is(err, store.ErrNotFound) {
			rec, err = nil, nil
		}
		if err != nil {
			h.t.Fatalf("response %s: %v", id, err)
		}
		if is(rec) {
			return
		}
	}
}

func gone(rec *store.Response) bool { return rec == nil }

func ended(as berth.Status) func(*store.Response) bool {
	return func(rec *store.Response) bool { return rec != nil && rec.Body.Status == as }
}
