package mcp

import (
	"context"
	"sync"

	"github.com/berth-run/berth/internal/ration"
)

// An intake bounds what a server sends during one call, and reserves the memory for it. A nil intake has no
// limit. It is safe for concurrent use.
type intake struct {
	account *ration.Account // may be nil
	fault   *connectionError

	mu   sync.Mutex // guards all fields below
	most int64      // bytes until the next begin
	got  int64

	sent    int // messages to the server since begin, also those that are to be sent
	sending int // messages that the server has not taken yet
}

// Limits of the messages that are sent to a server during one call. This client sends few of its own; the others
// answer what the server asks, each from a goroutine of its own and, over HTTP, on a connection of its own.
const (
	maxSent    = 1000
	maxSending = 32 // at once
)

// send counts a message that is about to be sent. The caller must call taken after it.
func (in *intake) send() error {
	in.mu.Lock()
	in.sent++
	in.sending++
	over := in.sent > maxSent || in.sending > maxSending
	in.mu.Unlock()
	if over {
		return in.fail(errAsks)
	}
	return nil
}

// ask counts a message that has to be answered.
func (in *intake) ask() error {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	in.sent++
	over := in.sent > maxSent
	in.mu.Unlock()
	if over {
		return in.fail(errAsks)
	}
	return nil
}

// taken ends what send began.
func (in *intake) taken() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sending--
}

func newIntake(pool *ration.Pool, owner string, f *connectionError) *intake {
	return &intake{account: pool.Open(owner), fault: f, most: maxMessage}
}

// begin allows a number of bytes from now on.
func (in *intake) begin(most int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.most, in.got, in.sent = most, 0, 0
}

// end returns the memory of what has arrived, which nothing uses any more.
func (in *intake) end() { in.account.Return(in.account.Needs()) }

// received returns how many bytes have arrived since begin.
func (in *intake) received() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.got
}

// receive counts bytes that have arrived, before they are collected.
func (in *intake) receive(ctx context.Context, n int) error {
	if in == nil || n <= 0 {
		return nil
	}
	in.mu.Lock()
	in.got += int64(n)
	over, list := in.got > in.most, in.most <= maxList
	asks := in.sent > maxSent || in.sending > maxSending
	in.mu.Unlock()
	switch {
	case asks:
		return in.fail(errAsks)
	case over && list:
		return in.fail(errLongList)
	case over:
		return in.fail(errTooLarge)
	}
	return in.fail(in.account.Reserve(ctx, 2*int64(n))) // a buffer that grows is copied
}

// decode reserves the memory to decode a message.
func (in *intake) decode(ctx context.Context, message []byte) error {
	if in == nil {
		return nil
	}
	return in.fail(in.account.ReserveDecoding(ctx, message))
}

// fail records an error as the fault of the connection.
func (in *intake) fail(err error) error {
	if err != nil {
		in.fault.set(func(f *connectionError) { f.err = err })
	}
	return err
}
