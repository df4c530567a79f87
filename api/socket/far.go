package socket

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// A remote is a connection to another server of the cluster, which answers the frames for its
// containers, as if the client had connected to it. Its messages are sent to the client unchanged.
type remote struct {
	conn *websocket.Conn

	mu    sync.Mutex
	turns map[string]chan<- ending // by lane; nil after the end of the connection
}

// An ending is how another server ended a turn.
type ending struct {
	response berth.ResponseID
	final    berth.EventType // "" if the request was refused
	err      error           // if the connection ended first
}

var errFarLost = &berth.Error{Code: berth.CodeUnavailable, RetryAfter: 2 * time.Second,
	Message: "The server of the cluster that has this container cannot be reached at the moment. Try again later."}

// mayVisit reports whether other servers may answer the frames of this connection.
func (k *socket) mayVisit() bool {
	return !exchange.IsForwarded(k.request.Context())
}

// continues returns the server whose memory has the response that the frame continues, or "" if
// that is this server or the response is stored.
func (t *turn) continues() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lanes {
		if t.frame.previous != "" && l.latest == t.frame.previous && l.server != "" {
			return l.server
		}
	}
	return ""
}

// answerAt lets another server answer the frame.
func (t *turn) answerAt(server string) error {
	ended := make(chan ending, 1)
	for fresh := false; ; fresh = true {
		f, known, err := t.far(server, t.caller)
		if err != nil {
			return err
		}
		if f.begin(t.ctx, &t.frame, ended) {
			break
		}
		t.forget(server, f)
		if fresh || !known {
			return errFarLost
		}
	}
	t.server = server
	select {
	case end := <-ended:
		t.response, t.final = end.response, end.final
		if t.final == "" && end.err == nil {
			t.final = berth.EventFailed // the client has the error
		}
		return end.err
	case <-t.ctx.Done():
		if errors.Is(context.Cause(t.ctx), errClientLeft) {
			return nil
		}
		return errFarLost
	}
}

// far returns the connection to a server, and whether it was there before.
func (k *socket) far(server string, c berth.Caller) (f *remote, known bool, err error) {
	k.mu.Lock()
	f = k.fars[server]
	k.mu.Unlock()
	if f != nil {
		return f, true, nil
	}
	conn, _, err := websocket.Dial(k.ctx, "https://"+server+k.request.URL.Path,
		&websocket.DialOptions{HTTPClient: k.door.Exchange.Placement.Client(c, server)})
	if err != nil {
		lost := *errFarLost
		lost.Err = err
		return nil, false, &lost
	}
	conn.SetReadLimit(-1)
	f = &remote{conn: conn, turns: map[string]chan<- ending{}}
	k.mu.Lock()
	if other := k.fars[server]; other != nil {
		k.mu.Unlock()
		_ = conn.CloseNow()
		return other, true, nil
	}
	k.fars[server] = f
	k.mu.Unlock()
	go f.copy(k, server)
	return f, false, nil
}

// forget removes a connection that has ended.
func (k *socket) forget(server string, f *remote) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fars[server] == f {
		delete(k.fars, server)
	}
}

// closeFars ends the connections to other servers, which cancel what still runs there.
func (k *socket) closeFars() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.fars {
		_ = f.conn.CloseNow()
	}
}

// begin sends a frame. It returns false if the connection has ended.
func (f *remote) begin(ctx context.Context, fr *frame, ended chan<- ending) bool {
	f.mu.Lock()
	if f.turns == nil {
		f.mu.Unlock()
		return false
	}
	f.turns[fr.lane] = ended
	f.mu.Unlock()
	if f.conn.Write(ctx, websocket.MessageText, fr.data) == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.turns, fr.lane)
	return false
}

// copy sends the messages of the other server to the client until the connection ends.
func (f *remote) copy(k *socket, server string) {
	responses := map[string]berth.ResponseID{} // by lane
	for {
		_, data, err := f.conn.Read(k.ctx)
		if err != nil {
			break
		}
		var ev struct {
			Type     berth.EventType                `json:"type"`
			StreamID string                         `json:"stream_id"`
			Number   *int64                         `json:"sequence_number"`
			Response *struct{ ID berth.ResponseID } `json:"response"`
		}
		if json.Unmarshal(data, &ev) != nil || k.send(data) != nil {
			break
		}
		if ev.Response != nil {
			responses[ev.StreamID] = ev.Response.ID
		}
		switch {
		case ev.Type.Final():
			f.end(ev.StreamID, ending{response: responses[ev.StreamID], final: ev.Type})
		case ev.Type == berth.EventErrored && ev.Number == nil: // not an event of a response
			f.end(ev.StreamID, ending{response: responses[ev.StreamID]})
		}
	}
	k.forget(server, f)
	_ = f.conn.CloseNow()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ended := range f.turns {
		ended <- ending{err: errFarLost}
	}
	f.turns = nil
}

// end ends the turn of a lane.
func (f *remote) end(lane string, how ending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ended := f.turns[lane]; ended != nil {
		ended <- how
		delete(f.turns, lane)
	}
}
