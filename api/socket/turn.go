package socket

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/engine"
)

// start starts the waiting frames whose turn it is. k.mu must be held.
func (k *socket) start() {
	for i := 0; i < len(k.waiting) && k.running < maxRunning && !k.retired && k.ctx.Err() == nil; {
		f := k.waiting[i]
		l := k.lanes[f.lane]
		if l.busy {
			i++
			continue
		}
		k.waiting = slices.Delete(k.waiting, i, i+1)
		l.busy = true
		k.running++
		go k.turn(l, f)
	}
}

// end marks a lane as free and starts its next frame.
func (k *socket) end(l *lane) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.busy = false
	k.running--
	k.start()
	if k.retired && k.running == 0 {
		close(k.idle)
	}
}

// turn answers one frame, logs it and updates the lane. A panic ends only the turn.
func (k *socket) turn(l *lane, f frame) {
	defer k.end(l)
	defer f.held.Close()
	t := turn{socket: k, frame: f, requestID: berth.NewID(berth.PrefixRequest), startedAt: time.Now()}
	func() {
		defer func() {
			if p := recover(); p != nil {
				k.door.Exchange.Log.Error("handler panicked", "request_id", t.requestID, "panic", p, "stack",
					string(debug.Stack()))
				t.err = errors.New("panic")
			}
		}()
		t.err = t.answer()
	}()
	status := 200
	if t.err != nil {
		k.door.Exchange.LogFailure(k.ctx, t.requestID, k.request.URL.Path, t.err)
		status = k.sendError(f.lane, t.err, t.requestID)
	}
	k.settle(l, &t)
	k.door.Exchange.Log.LogAttrs(k.ctx, slog.LevelInfo, "response", slog.String("response", string(t.response)),
		slog.Int("status", status), slog.String("end", string(t.final)), slog.Duration("duration",
			time.Since(t.startedAt)),
		slog.String("project", string(t.caller.Project)), slog.String("key", string(t.caller.Key)),
		slog.String("request_id", t.requestID), slog.String("connection", k.id))
}

// A turn is the answer to one frame.
type turn struct {
	*socket
	frame     frame
	requestID string
	startedAt time.Time
	caller    berth.Caller
	response  berth.ResponseID // "" if none was created
	final     berth.EventType  // the last event; "" if the response did not end
	err       error
	server    string // that answered the frame, if it is another one
}

// createPattern is the route that does what a message asks for.
const createPattern = "POST /v1/responses"

// answer creates the response and sends its events. The caller must send the error that it
// returns to the client.
func (t *turn) answer() error {
	// The key may have been revoked since the connection was opened, which needed another permission.
	caller, err := t.door.Exchange.Identify(t.request, berth.MayRun|berth.MayApprove, createPattern)
	if err != nil {
		select {
		case t.unwelcome <- struct{}{}:
		default:
		}
		return err
	}
	caller.RequestID = t.requestID
	t.caller = caller
	if t.frame.err != nil {
		return t.frame.err
	}
	if server := t.continues(); server != "" {
		return t.answerAt(server)
	}
	if t.door.Exchange.Quota != nil {
		release, err := t.door.Exchange.Quota.Reserve(t.ctx, caller.Project, t.frame.size)
		if err != nil {
			return err
		}
		defer release()
	}
	// The end of ctx cancels the run of a client that has disconnected, and removes a
	// response that is not stored.
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	options := []engine.Option{engine.Within(t.memory)}
	if t.frame.prepare {
		options = append(options, engine.Prepared())
	}
	created, err := t.door.Create(ctx, caller, t.frame.req, options...)
	if server := exchange.ServerFor(err); server != "" && t.mayVisit() {
		return t.answerAt(server)
	}
	if err != nil && ctx.Err() != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Message: "The server is stopping. Try again in a moment.",
			Err: err}
	}
	if err != nil {
		return err
	}
	t.response = created.ID
	for ev, err := range t.door.Journal.Follow(ctx, t.caller.Project, t.response, -1) {
		if err != nil {
			if errors.Is(context.Cause(ctx), errClientLeft) {
				return nil
			}
			return exchange.FollowError(ctx, t.response, err)
		}
		if t.send(t.frame.shown(ev.Data)...) != nil {
			return nil // the client is gone or does not read
		}
		if ev.Type.Final() {
			t.final = ev.Type
		}
	}
	return nil
}

// shown returns an event for the client of the frame, in pieces: with padding and the
// stream_id.
func (f *frame) shown(event []byte) [][]byte {
	var tail []byte
	if exchange.Obfuscates(f.req) {
		event, tail = exchange.Obfuscate(event)
	}
	if tail == nil && f.lane != "" && bytes.HasSuffix(event, []byte("}")) {
		event, tail = event[:len(event)-1], []byte("}")
	}
	if tail != nil && f.lane != "" {
		tail = append(append(append(tail[:len(tail)-1:len(tail)-1], `,"stream_id":"`...), f.lane...), `"}`...)
	}
	return [][]byte{event, tail}
}

// settle removes all responses of a lane from memory except the latest. After a failure, it
// also removes the response that was continued, unless that is the latest of another lane.
func (k *socket) settle(l *lane, t *turn) {
	evict := func(id berth.ResponseID) {
		if id != "" {
			k.memory.Forget(t.caller.Project, id)
		}
	}
	switch {
	case t.final == berth.EventCompleted || t.final == berth.EventIncomplete:
		evict(l.latest)
		k.mu.Lock()
		l.latest, l.server = t.response, t.server
		k.mu.Unlock()
	case t.err != nil || t.final == berth.EventFailed:
		if l.latest == t.frame.previous {
			evict(l.latest)
			k.mu.Lock()
			l.latest, l.server = "", ""
			k.mu.Unlock()
		}
	}
}
