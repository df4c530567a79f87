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

// terse is an interceptor that makes the errors of all calls brief.
type terse struct{}

func (terse) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		return resp, brief(err)
	}
}

func (terse) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return terseConn{next(ctx, spec)}
	}
}

func (terse) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

type terseConn struct{ connect.StreamingClientConn }

func (c terseConn) Receive(m any) error  { return brief(c.StreamingClientConn.Receive(m)) }
func (c terseConn) CloseResponse() error { return brief(c.StreamingClientConn.CloseResponse()) }
