package messages

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// errGone means that the client is gone or does not read.
var errGone = errors.New("the client is gone")

// stream answers with the events of a message. It sends the header with the first event, so that an earlier failure
// can set the HTTP status. A later failure is sent as an event.
func (d *Door) stream(x *exchange.Exchange, r *http.Request, c berth.Caller, a *answer, gone func()) error {
	return stream(x, gone, func(out *exchange.EventWriter) error {
		err := d.send(r.Context(), c, a, out)
		if err == nil || errors.Is(err, errGone) {
			return err
		}
		return a.fail(x.Header(), err)
	})
}

// stream answers with the events that send sends, and with its error. It sends a ping while there are no events.
func stream(x *exchange.Exchange, gone func(), send func(*exchange.EventWriter) error) error {
	out := x.Events(false)
	out.Ping("ping", bare{"ping"})
	quiet := sync.OnceFunc(out.KeepAlive(gone))
	defer quiet()
	err := send(out)
	quiet()
	if err == nil || errors.Is(err, errGone) {
		return nil
	}
	if x.Started() {
		status, e := exchange.Describe(err, x.RequestID())
		_ = out.Typed(exchange.TypedEvent{Type: "error", Body: newFailure(status, e, x.RequestID())})
	} else {
		out.Unset()
	}
	return err
}

// send sends all events of a message.
func (d *Door) send(ctx context.Context, c berth.Caller, a *answer, out *exchange.EventWriter) error {
	for events, err := range d.Journal.FollowPages(ctx, c.Project, a.response, -1) {
		if err != nil {
			return followError(ctx, err)
		}
		failure := a.applyAll(events)
		ready := a.ready()
		if a.ended {
			ready = append(ready, d.end(ctx, c, a)...)
		}
		if len(ready) > 0 && out.Typed(ready...) != nil {
			return errGone
		}
		if failure != nil {
			return failure
		}
	}
	if !a.ended {
		return errNoEnd
	}
	return nil
}

// ready returns the events of what can be sent. Blocks follow one another: one that is written while an earlier one
// is open waits.
func (a *answer) ready() []exchange.TypedEvent {
	var events []exchange.TypedEvent
	send := func(kind string, body any) { events = append(events, exchange.TypedEvent{Type: kind, Body: body}) }
	if !a.started && (len(a.blocks) > 0 || a.ended) {
		a.started = true
		send("message_start", messageStart{"message_start", a.head()})
		send("ping", bare{"ping"})
	}
	for a.next < len(a.blocks) {
		b := a.blocks[a.next]
		if !b.opened {
			b.opened = true
			send("content_block_start", blockStart{"content_block_start", a.next, b.output(false)})
		}
		for _, delta := range b.deltas {
			send("content_block_delta", blockDelta{"content_block_delta", a.next, delta})
		}
		b.deltas = nil
		if !b.done {
			break
		}
		send("content_block_stop", blockStop{"content_block_stop", a.next})
		a.next++
	}
	return events
}

// end returns the last events of a message.
func (d *Door) end(ctx context.Context, c berth.Caller, a *answer) []exchange.TypedEvent {
	usage := newUsage(a.usage)
	usage.ServerToolUse, usage.Iterations = a.serverUse(), a.calls
	return []exchange.TypedEvent{
		{Type: "message_delta", Body: messageDelta{Type: "message_delta", Usage: usage, Context: a.context(),
			Delta: messageEnd{StopReason: &a.stop, StopSequence: a.sequence, StopDetails: a.details(),
				Container: d.containerOf(ctx, c, a)}}},
		{Type: "message_stop", Body: bare{"message_stop"}},
	}
}

// whole returns the message. It must have ended.
func (d *Door) whole(ctx context.Context, c berth.Caller, a *answer) wholeMessage {
	m := a.head()
	for _, b := range a.blocks {
		m.Content = append(m.Content, b.output(true))
	}
	m.StopReason, m.StopDetails, m.Container, m.Context = &a.stop, a.details(), d.containerOf(ctx, c, a), a.context()
	m.Usage.ServerToolUse, m.StopSequence = a.serverUse(), a.sequence
	return m
}

// containerOf returns the container of a message, or nil.
func (d *Door) containerOf(ctx context.Context, c berth.Caller, a *answer) *containerInfo {
	if a.container == "" || d.Containers == nil {
		return nil
	}
	held, err := d.Containers.Get(ctx, c.Project, a.container)
	if err != nil {
		return nil // it was deleted, or no call has used it
	}
	info := &containerInfo{ID: held.ID, ExpiresAt: expires(held), Skills: []usedSkill{}}
	for _, s := range held.Berth.Skills {
		if s.SkillID != "" {
			info.Skills = append(info.Skills, usedSkill{"custom", s.SkillID, s.Version})
		}
	}
	return info
}
