package openterminal

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/process"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/conns"
)

// Limits of the WebSocket of a terminal.
const (
	authTime   = 10 * time.Second // for the first message
	writeTime  = 30 * time.Second // for a client to take output
	maxMessage = 1 << 20          // bytes of a message
)

// Codes with which the server closes the WebSocket.
const (
	closeNoKey     websocket.StatusCode = 4001
	closeNotFound  websocket.StatusCode = 4004
	closeConnected websocket.StatusCode = 4009
)

// terminalPath is the path below which terminals are.
const terminalPath = Path + "/api/terminals"

// shell starts the shell of a terminal.
const shell = "if command -v bash >/dev/null; then exec bash -i; fi; exec sh -i"

// A terminalState is a terminal as clients read it.
type terminalState struct {
	ID        string `json:"id"`
	CreatedAt string `json:"created_at"`
	PID       int    `json:"pid"` // no process of the client's machine; 0
}

func terminalOf(p *process.Process) terminalState {
	return terminalState{ID: p.ID, CreatedAt: p.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000Z")}
}

// errNoTerminal is the answer to a request for a terminal that the client does not have.
var errNoTerminal = &plain{http.StatusNotFound, map[string]string{"error": "Session not found"}}

// serverMark separates the id of a terminal from the name of its server, in a cluster.
const serverMark = "."

// createTerminal serves POST /api/terminals.
func (v *visit) createTerminal() error {
	mark := ""
	if !v.door.Placement.Alone() {
		mark = serverMark + base64.RawURLEncoding.EncodeToString([]byte(v.door.Placement.Self()))
	}
	p, err := v.start(process.Spec{Shell: true, Mark: mark, Request: guest.ProcessRequest{Cmd: "/bin/sh",
		Args: []string{"-c", shell}, Env: withTerminal(nil), Dir: v.cwd(), TTY: &screen}})
	if e, ok := berthError(err); ok && e.Wire == "too_many_terminals" {
		return &plain{http.StatusTooManyRequests, map[string]string{"error": e.Message}}
	}
	if err != nil {
		return err
	}
	return v.x.JSON(http.StatusOK, terminalOf(p))
}

func berthError(err error) (*berth.Error, bool) { return errors.AsType[*berth.Error](err) }

// listTerminals serves GET /api/terminals.
func (v *visit) listTerminals() error {
	all := []terminalState{}
	for _, p := range v.door.Processes.List(v.owner, true) {
		all = append(all, terminalOf(p))
	}
	return v.x.JSON(http.StatusOK, all)
}

// terminal returns the terminal of the path.
func (v *visit) terminal() (*process.Process, error) {
	p, ok := v.door.Processes.Find(v.owner, v.r.PathValue("terminal"), true)
	if !ok {
		return nil, errNoTerminal
	}
	return p, nil
}

// getTerminal serves GET /api/terminals/{terminal}.
func (v *visit) getTerminal() error {
	p, err := v.terminal()
	if err != nil {
		return err
	}
	return v.x.JSON(http.StatusOK, terminalOf(p))
}

// deleteTerminal serves DELETE /api/terminals/{terminal}.
func (v *visit) deleteTerminal() error {
	p, err := v.terminal()
	if err != nil {
		return err
	}
	if err := p.Kill(v.r.Context(), true); err != nil {
		return v.guestError(err)
	}
	return v.x.JSON(http.StatusOK, map[string]string{"status": "deleted"})
}

// connected returns the newest terminal to which the user is connected.
func (v *visit) connected() (*process.Process, error) {
	all := v.door.Processes.List(v.owner, true)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Connected() {
			return all[i], nil
		}
	}
	return nil, refused(http.StatusNotFound, "No connected user shell")
}

// terminalOutput serves GET /api/terminals/user/output: what the user's terminal has shown last.
func (v *visit) terminalOutput() error {
	p, err := v.connected()
	if err != nil {
		return err
	}
	return v.x.JSON(http.StatusOK, map[string]string{"output": strings.Join(p.Read(0, 0).Output, "")})
}

// terminalInput serves POST /api/terminals/user/input: it types in the user's terminal.
func (v *visit) terminalInput() error {
	p, err := v.connected()
	if err != nil {
		return err
	}
	var body struct {
		Input string `json:"input"`
	}
	if err := v.decode(&body, "input"); err != nil {
		return err
	}
	if len(body.Input) > maxInput {
		return berth.Errorf(berth.CodeTooLarge, "The input is longer than %d bytes.", maxInput)
	}
	if err := p.Write(v.r.Context(), []byte(body.Input)); err != nil {
		return refused(http.StatusConflict, "User shell has disconnected")
	}
	return v.x.JSON(http.StatusOK, map[string]string{"status": "ok"})
}

// socketRoute returns the route of the WebSockets of terminals. Their clients send the key in the first message.
func (d *Door) socketRoute() exchange.Route {
	rt := exchange.On("Open Terminal's WebSocket", d.socket, exchange.Keyless)
	rt.Method, rt.Path = "", "Open Terminal's WebSocket"
	rt.Select = func(r *http.Request) bool {
		id, below := strings.CutPrefix(r.URL.Path, terminalPath+"/")
		return below && id != "" && !strings.Contains(id, "/") &&
			exchange.HeaderHas(r.Header, "Upgrade", "websocket")
	}
	return rt
}

// socket connects a client to a terminal.
func (d *Door) socket(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	id := strings.TrimPrefix(r.URL.Path, terminalPath+"/")
	if done, err := d.elsewhere(x, r, id); done || err != nil {
		return err
	}
	// The origin need not be checked here: the first message has a key, or a server without keys checks it then.
	conn, err := websocket.Accept(x, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	conn.SetReadLimit(maxMessage)
	defer conn.CloseNow()
	caller, owner, err := d.admit(r, conn)
	if err != nil {
		_ = conn.Close(closeNoKey, "Invalid API key")
		return nil
	}
	conns.Known(r.Context())
	r, done := x.WhileValid(r, x.SetCaller(caller))
	defer done()
	p, ok := d.Processes.Lookup(id)
	if ok {
		owner.Container = p.Owner.Container
	}
	if !ok || !p.Shell || p.Owner != owner || p.Status() != process.Running {
		_ = conn.Close(closeNotFound, "Session not found")
		return nil
	}
	d.connect(r.Context(), conn, p)
	return nil
}

// elsewhere forwards a request to the server that the id of a terminal names.
func (d *Door) elsewhere(x *exchange.Exchange, r *http.Request, id string) (done bool, _ error) {
	_, name, marked := strings.Cut(id, serverMark)
	server, err := base64.RawURLEncoding.DecodeString(name)
	if !marked || err != nil || d.Placement.Alone() || exchange.IsForwarded(r.Context()) ||
		string(server) == d.Placement.Self() {
		return false, nil
	}
	alive, err := d.Placement.Alive(r.Context(), string(server))
	if err != nil || !alive {
		return false, err
	}
	return true, d.Placement.Forward(x, r, nil, string(server))
}

// admit reads the first message of a client, which has a key, and returns who it is.
func (d *Door) admit(r *http.Request, conn *websocket.Conn) (berth.Caller, process.Owner, error) {
	ctx, cancel := context.WithTimeout(r.Context(), authTime)
	defer cancel()
	var first struct {
		Type  string `json:"type"`
		Token string `json:"token"`
		Chat  string `json:"chat_id"`
	}
	kind, message, err := conn.Read(ctx)
	if err != nil || kind != websocket.MessageText || json.Unmarshal(message, &first) != nil || first.Type != "auth" {
		return berth.Caller{}, process.Owner{}, errors.New("no first message with a key")
	}
	signed := r.Clone(ctx)
	signed.Header.Del("Authorization")
	if first.Token != "" {
		signed.Header.Set("Authorization", "Bearer "+first.Token)
	}
	caller, err := d.Exchange.Identify(signed, berth.MayAttach, "GET "+terminalPath+"/{terminal}")
	if err != nil {
		return caller, process.Owner{}, fmt.Errorf("identify: %w", err)
	}
	owner, _ := ownerOf(r.Header, caller.Project)
	if _, named := r.Header[sessionHeader]; !named {
		owner.Session = first.Chat
	}
	return caller, owner, nil
}

// connect passes on what a client types and what a terminal prints, until one of them ends. Then both have.
func (d *Door) connect(ctx context.Context, conn *websocket.Conn, p *process.Process) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leave, err := p.Connect(func(data []byte) {
		limited, stop := context.WithTimeout(ctx, writeTime)
		defer stop()
		if len(data) > 0 && conn.Write(limited, websocket.MessageBinary, data) != nil {
			cancel()
		}
	})
	if err != nil {
		_ = conn.Close(closeConnected, "Session already connected")
		return
	}
	defer func() {
		leave()
		if err := p.Kill(ctx, true); err != nil {
			d.Log.Warn("failed to end a terminal", "container", p.Owner.Container, "err", err)
		}
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}()
	go func() {
		select {
		case <-p.Done():
			_ = conn.Close(websocket.StatusNormalClosure, "") // ends the loop below
		case <-ctx.Done():
		}
	}()
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if p.Write(ctx, data) != nil {
				return
			}
			continue
		}
		var message struct {
			Type string `json:"type"`
			Cols int    `json:"cols"`
			Rows int    `json:"rows"`
		}
		if json.Unmarshal(data, &message) == nil && message.Type == "resize" && message.Cols > 0 &&
			message.Cols <= 1000 && message.Rows > 0 && message.Rows <= 1000 {
			_ = p.Resize(ctx, guest.Size{Cols: message.Cols, Rows: message.Rows}) // the next one may succeed
		}
	}
}
