package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

const (
	maxTyped   = 256 << 10        // bytes of one message of a browser
	maxUnread  = 512 << 10        // bytes that a browser may leave unread
	slowest    = 10 * time.Second // for a browser to read, because it holds up all others at the terminal
	maxCells   = 1000             // of a terminal's width and height
	firstSpeak = 30 * time.Second // for the first message of a browser
)

// A terminalsPage is the page of a container's terminals.
type terminalsPage struct {
	Tab       tab
	Form      formToken
	Terminals []guest.Terminal
}

// Page returns the path of the page.
func (p terminalsPage) Page() string { return p.Tab.Path() + "/terminals" }

// Short returns the id of the container as tables of the command line show it.
func (p terminalsPage) Short() string {
	id := string(p.Tab.Container.ID)
	return berth.PrefixContainer + id[max(len(berth.PrefixContainer), len(id)-8):]
}

// show serves GET /console/containers/{container}/terminals: the terminals that run, also
// those that berth attach has opened. They do not belong to the page, so they survive it.
func (p *terminalsPage) show(v *visit) error {
	c, err := readContainer(v)
	if err != nil {
		return err
	}
	*p = terminalsPage{Tab: tab{c, "terminals", v.formToken()}, Form: v.formToken()}
	if p.Tab.Running() {
		if p.Terminals, err = guestOf(v, c.ID).Terminals(v.r.Context()); err != nil {
			return fileFailure(err)
		}
	}
	return v.show(http.StatusOK, "terminals", "Terminals", p)
}

// create serves POST /console/containers/{container}/terminals: it starts a shell that waits
// for a page to join it.
func (*terminalsPage) create(v *visit) error {
	id := berth.ContainerID(v.r.PathValue("container"))
	p, err := guestOf(v, id).Start(v.r.Context(), guest.ProcessRequest{Cmd: "/bin/bash", Args: []string{"-l", "-i"},
		Env: map[string]string{"TERM": "xterm-256color"},
		TTY: &guest.Size{Cols: 80, Rows: 24}, In: true, Tag: guest.TerminalTag + "-" + rand.Text()})
	if err != nil {
		return fileFailure(err)
	}
	p.Leave()
	return v.redirect("/console/containers/" + url.PathEscape(string(id)) + "/terminals")
}

// end serves POST /console/containers/{container}/terminals/{terminal}/end.
func (*terminalsPage) end(v *visit) error {
	client := guestOf(v, berth.ContainerID(v.r.PathValue("container")))
	pid, err := terminalOf(v.r)
	if err != nil {
		return err
	}
	p, err := client.Join(v.r.Context(), pid)
	if err == nil {
		err = p.Kill(v.r.Context())
		p.Leave()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileFailure(err)
	}
	return v.redirect("/console/containers/" + url.PathEscape(v.r.PathValue("container")) + "/terminals")
}

func terminalOf(r *http.Request) (int, error) {
	pid, err := strconv.Atoi(r.PathValue("terminal"))
	if err != nil || pid <= 0 {
		return 0, &failure{http.StatusNotFound, "There is no such terminal."}
	}
	return pid, nil
}

// A screenMessage is a message of a browser that is not input. The first has the token of the page's
// forms.
type screenMessage struct {
	Form string `json:"form"`
	Cols int    `json:"cols"` // 0 if the size has not changed
	Rows int    `json:"rows"`
	Read int    `json:"read"` // bytes of output that were drawn since the last message
}

func (m screenMessage) size() (guest.Size, bool) {
	return guest.Size{Cols: m.Cols, Rows: m.Rows}, m.Cols > 0 && m.Rows > 0 && m.Cols <= maxCells && m.Rows <= maxCells
}

// join serves GET /console/containers/{container}/terminals/{terminal}/socket, a WebSocket.
// Binary messages are input and output; the first output is what the terminal has shown before. Text
// messages are a screenMessage, or of the server {"ended": "how"}.
func (*terminalsPage) join(v *visit) error {
	pid, err := terminalOf(v.r)
	if err != nil {
		return err
	}
	if err := v.get(probe, &struct{}{}); err != nil { // also checks from where the request comes
		return err
	}
	conn, err := websocket.Accept(v.w, v.r, nil) // refuses another origin; the answer is written
	if err != nil {
		return nil
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxTyped)
	ctx, cancel := context.WithCancel(context.WithoutCancel(v.r.Context()))
	defer cancel()
	first, err := readScreen(ctx, conn)
	if err != nil || !hmac.Equal([]byte(first.Form), []byte(v.formToken().token)) {
		conn.Close(websocket.StatusPolicyViolation, "reload the page")
		return nil
	}
	v.r = v.r.WithContext(ctx)
	p, err := guestOf(v, berth.ContainerID(v.r.PathValue("container"))).Join(ctx, pid)
	if err != nil {
		conn.Close(websocket.StatusGoingAway, "the terminal has ended")
		return nil
	}
	s := &screen{conn: conn, process: p, more: make(chan struct{}, 1)}
	if size, ok := first.size(); ok {
		_ = p.Resize(ctx, size)
	}
	go func() {
		defer cancel()
		s.receive(ctx)
	}()
	go s.ping(ctx)
	s.send(ctx)
	return nil
}

// readScreen reads the first message of a browser.
func readScreen(ctx context.Context, conn *websocket.Conn) (m screenMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, firstSpeak)
	defer cancel()
	kind, raw, err := conn.Read(ctx)
	if err != nil {
		return m, fmt.Errorf("read first message: %w", err)
	}
	if kind != websocket.MessageText {
		return m, errors.New("the first message is not text")
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("decode first message: %w", err)
	}
	return m, nil
}

// ping sends something now and then, so that proxies do not close a quiet connection.
func (s *screen) ping(ctx context.Context) {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.conn.Ping(ctx) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// A screen is a browser that shows a terminal.
type screen struct {
	conn    *websocket.Conn
	process *guest.Process
	read    atomic.Int64  // bytes that were drawn and are not counted yet
	more    chan struct{} // read has changed
}

// receive passes input to the process until the browser is gone.
func (s *screen) receive(ctx context.Context) {
	for {
		kind, raw, err := s.conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if s.process.Write(ctx, raw) != nil {
				return // the process has ended
			}
			continue
		}
		var m screenMessage
		if json.Unmarshal(raw, &m) != nil {
			return
		}
		if size, ok := m.size(); ok {
			_ = s.process.Resize(ctx, size)
		}
		if m.Read > 0 {
			s.read.Add(int64(m.Read))
			select { // never waits: send may wait for the echo of what follows
			case s.more <- struct{}{}:
			default:
			}
		}
	}
}

// send passes output to the browser until the process ends or the browser is gone. It drops a
// browser that does not draw what it gets, which may join again.
func (s *screen) send(ctx context.Context) {
	defer s.process.Leave()
	unread := 0
	for ev, err := range s.process.Events() {
		switch {
		case err != nil:
			s.conn.Close(websocket.StatusGoingAway, "the container does not answer")
			return
		case ev.Ended:
			ended, _ := json.Marshal(map[string]string{"ended": ev.Status}) // never fails
			if s.conn.Write(ctx, websocket.MessageText, ended) == nil {
				s.conn.Close(websocket.StatusNormalClosure, "")
			}
			return
		}
		if !s.deliver(ctx, ev.Stdout) {
			return
		}
		unread += len(ev.Stdout)
		for late := time.After(slowest); unread > 0; {
			var wait <-chan time.Time
			if unread > maxUnread {
				wait = late
			}
			n, ok := s.drawn(ctx, wait)
			if !ok {
				s.conn.Close(websocket.StatusTryAgainLater, "the page does not keep up")
				return
			}
			if n == 0 {
				break
			}
			unread = max(0, unread-n)
		}
	}
}

// deliver sends output to the browser.
func (s *screen) deliver(ctx context.Context, data []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, slowest)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageBinary, data) == nil
}

// drawn returns how many bytes were drawn since the last call: 0 if none, unless late is set: then
// it waits for some, and ok is false if none were drawn in time.
func (s *screen) drawn(ctx context.Context, late <-chan time.Time) (n int, ok bool) {
	for {
		n = int(s.read.Swap(0))
		if n > 0 || late == nil {
			return n, true
		}
		select {
		case <-s.more:
		case <-late:
			return 0, false
		case <-ctx.Done():
			return 0, false
		}
	}
}
