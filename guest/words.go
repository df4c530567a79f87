package guest

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"
)

// maxWords bounds an error text of a guest, in bytes.
const maxWords = 1 << 10

// fewWords returns s, cut to maxWords.
func fewWords(s string) string {
	if len(s) > maxWords {
		return strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return s
}

// brief returns a guest's error with its text cut.
func brief(err error) error {
	if e, ok := errors.AsType[*connect.Error](err); ok && len(e.Message()) > maxWords {
		return connect.NewError(e.Code(), errors.New(fewWords(e.Message())))
	}
	return err
}

// terse is an interceptor that makes the errors of all calls brief and true about their callers' deadlines.
type terse struct{}

func (terse) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		return resp, brief(punctual(ctx, err))
	}
}

func (terse) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return terseConn{next(ctx, spec), ctx}
	}
}

func (terse) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

type terseConn struct {
	connect.StreamingClientConn
	ctx context.Context // of the call
}

func (c terseConn) Receive(m any) error {
	return brief(punctual(c.ctx, c.StreamingClientConn.Receive(m)))
}

func (c terseConn) CloseResponse() error { return brief(c.StreamingClientConn.CloseResponse()) }

// punctual returns a call's error when the caller's own deadline has passed, if the guest says that it has. A call
// gives the guest its deadline, and the guest's timer may fire first: the caller would take its own limit for a
// failure of the guest. A guest that says so too early makes its caller wait, as one that says nothing does.
func punctual(ctx context.Context, err error) error {
	if _, limited := ctx.Deadline(); !limited || connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		return err
	}
	<-ctx.Done()
	return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
}
