package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/internal/ration"
)

// read reads the client's messages until the connection ends.
func (k *socket) read() {
	for k.readFrame() == nil {
	}
}

// readFrame reads one message and queues it. It sends errors of the message to the client.
// If it returns an error, the connection has ended.
func (k *socket) readFrame() error {
	held := k.door.Exchange.Memory.Bodies.Open(string(k.project))
	defer held.Close()
	text, data, err := k.message(held)
	if err != nil {
		return err
	}
	var f frame
	decoding := k.door.Exchange.Memory.Decoding.Open(string(k.project))
	if !text {
		err = berth.Errorf(berth.CodeInvalid,
			"Invalid message: expected a text message with a JSON event, but got a binary message instead.")
	} else {
		f, err = k.decode(data, decoding)
	}
	switch {
	case err == nil && f.steer != nil:
		k.refuse(f)
		decoding.Close()
		return nil
	case err == nil:
		f.held = decoding
		err = k.enqueue(f)
	}
	if err != nil {
		decoding.Close()
		k.sendError(f.lane, err, berth.NewID(berth.PrefixRequest))
	}
	return nil
}

// decode reserves memory for a frame and decodes it.
func (k *socket) decode(data []byte, held *ration.Account) (frame, error) {
	values, err := exchange.ScanJSON(data)
	if err == nil {
		err = held.Reserve(k.ctx, jsonscan.Weight(len(data), values))
	}
	if err != nil {
		return frame{size: int64(len(data))}, err
	}
	f, err := decodeFrame(k.door.Rules, data)
	if !k.door.Exchange.Placement.Alone() { // for a far
		f.data = data
		return f, err
	}
	held.Return(held.Needs() / 2)
	return f, err
}

// message reads one message. It fails if the client stalls within a message.
func (k *socket) message(held *ration.Account) (text bool, data []byte, err error) {
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	kind, in, err := k.conn.Reader(ctx)
	if err != nil {
		return false, nil, fmt.Errorf("read message: %w", err)
	}
	patience := k.patience(giveUp)
	defer patience.Stop()
	data, err = ration.Read(k.ctx, patience.reader(in), -1, held)
	if busy, ok := errors.AsType[*berth.Error](err); ok {
		k.sendError("", busy, berth.NewID(berth.PrefixRequest))
		k.leave(busy)
		_ = k.conn.Close(websocket.StatusTryAgainLater, "the server is overloaded")
	}
	return kind == websocket.MessageText, data, err
}

// send sends one message, the concatenation of the pieces, to the client. It ends the
// connection if the client does not read it in time.
func (k *socket) send(pieces ...[]byte) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	patience := k.patience(giveUp)
	defer patience.Stop()
	err := k.write(ctx, pieces, patience)
	if err != nil {
		k.leave(errClientLeft)
		_ = k.conn.CloseNow()
		return err
	}
	k.moved.Store(time.Now().UnixNano())
	return nil
}

// write sends a message. It sends a long one in fragments; the timeout applies to each.
func (k *socket) write(ctx context.Context, pieces [][]byte, patience *patience) error {
	const fragment = 32 << 10
	size := 0
	for _, data := range pieces {
		size += len(data)
	}
	if size <= fragment {
		if err := k.conn.Write(ctx, websocket.MessageText, bytes.Join(pieces, nil)); err != nil {
			return fmt.Errorf("write message: %w", err)
		}
		return nil
	}
	w, err := k.conn.Writer(ctx, websocket.MessageText)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	for _, data := range pieces {
		for len(data) > 0 {
			n, err := w.Write(data[:min(fragment, len(data))])
			if err != nil {
				return err
			}
			data = data[n:]
			patience.renew()
		}
	}
	return w.Close()
}

// ping pings an idle client until stop is called. It ends the connection if the client does
// not answer.
func (k *socket) ping() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	k.moved.Store(time.Now().UnixNano())
	wg.Go(func() {
		tick := time.NewTicker(k.door.Exchange.Limits.KeepAlive)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			start := time.Now()
			if start.UnixNano()-k.moved.Load() < int64(k.door.Exchange.Limits.KeepAlive) || !k.writing.TryLock() {
				continue // the connection is not idle
			}
			k.writing.Unlock()
			wait, done := context.WithTimeout(ctx, k.door.Exchange.Limits.Patience)
			err := k.conn.Ping(wait)
			done()
			// A client that is sending a long message cannot answer.
			if err != nil && ctx.Err() == nil && k.moved.Load() < start.UnixNano() {
				_ = k.conn.CloseNow()
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// A patience is a timer that cancels a transfer in which no byte moves for longer than
// Limits.Patience.
type patience struct {
	*time.Timer
	k *socket
}

func (k *socket) patience(giveUp func()) *patience {
	return &patience{time.AfterFunc(k.door.Exchange.Limits.Patience, giveUp), k}
}

func (p *patience) renew() {
	p.Reset(p.k.door.Exchange.Limits.Patience)
	p.k.moved.Store(time.Now().UnixNano())
}

// reader returns a reader of in that renews p.
func (p *patience) reader(in io.Reader) io.Reader { return patientMessage{in, p} }

type patientMessage struct {
	in io.Reader
	p  *patience
}

// Read reads small pieces, because the message's reader blocks until it has filled b.
func (m patientMessage) Read(b []byte) (int, error) {
	const piece = 4 << 10
	n, err := m.in.Read(b[:min(piece, len(b))])
	if n > 0 {
		m.p.renew()
	}
	return n, err
}

// An errorEvent is an error that is not an event of a response.
type errorEvent struct {
	Type     berth.EventType `json:"type"`
	Status   int             `json:"status"`
	StreamID string          `json:"stream_id,omitempty"`
	Error    struct {
		exchange.Error
		Headers map[string]string `json:"headers"`
	} `json:"error"`
}

// sendError sends an error event and returns its HTTP status. The event has the request id
// in "headers", where an HTTP answer has it.
func (k *socket) sendError(lane string, err error, requestID string) int {
	ev := errorEvent{Type: berth.EventErrored, StreamID: lane}
	ev.Status, ev.Error.Error = exchange.Describe(err, requestID)
	ev.Error.Headers = map[string]string{"x-request-id": requestID}
	data, _ := json.Marshal(ev) // strings and numbers always marshal
	_ = k.send(data)
	return ev.Status
}

// refuse answers a steering with an error, as OpenAI does for models without steering.
func (k *socket) refuse(f frame) {
	var ev struct {
		Type           string `json:"type"`
		SequenceNumber int64  `json:"sequence_number"`
		StreamID       string `json:"stream_id,omitempty"`
		Error          struct {
			Type    string `json:"type"`
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
		Steer *steering `json:"steer"`
	}
	ev.Type, ev.StreamID, ev.Steer = "response.steer.failed", f.lane, f.steer
	ev.Error.Type, ev.Error.Code = exchange.TypeInvalid, "steering_not_supported"
	ev.Error.Message = "Steering is not supported by this server. Send the input with the next response.create."
	data, _ := json.Marshal(ev) // f.steer was decoded from JSON
	_ = k.send(data)
}
