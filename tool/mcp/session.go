package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/tool"
)

// maxMessage bounds one message of a server, in bytes.
const maxMessage = 16 << 20

// Codes of JSON-RPC for failures of the connection.
const (
	codeClosed  = -32000
	codeTimeout = -32001
)

var (
	errTimeout  = errors.New("the server did not answer in time")
	errOrigin   = errors.New("the server refers to another host")
	errTooLarge = errors.New("the server sent too much")
	errLongList = errors.New("the server's list of tools is too long")
	errAsks     = errors.New("the server asks too much of its client")
	errNoSecret = errors.New("the credentials were not stored")
)

// A session is a connection to a server.
type session struct {
	client *sdk.ClientSession
	fault  *connectionError
	intake *intake
	end    func() // stops what the session needs: requests, the process; may be called again

	ended     chan struct{} // closed when the connection has ended
	cancelled bool          // a call was cancelled
	notified  chan struct{} // receives when a remote server has been notified of that; nil for a command
}

// cancelTime bounds the time to notify a server of a cancelled call.
const cancelTime = 2 * time.Second

// pingTime bounds the answer to a ping.
const pingTime = 5 * time.Second

// usable reports whether another call can be made. A command that did not answer a call may
// hang: it must answer a ping. A remote server answers each request for itself.
func (s *session) usable(ctx context.Context) bool {
	select {
	case <-s.ended:
		return false
	default:
	}
	if !s.cancelled || s.notified != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	if s.client.Ping(ctx, nil) != nil {
		return false
	}
	s.cancelled = false
	return true
}

// closeTime bounds the time to close a session in order. The SDK waits for the server to take the answers to
// what it asked.
const closeTime = 5 * time.Second

// close ends the session. The SDK notifies the server of a cancelled call in the
// background; close waits for that, because the server would go on with the call.
func (s *session) close() {
	if s.cancelled && s.notified != nil {
		select {
		case <-s.notified:
		case <-time.After(cancelTime):
		}
	}
	if _, _, err := s.fault.get(); errors.Is(err, errAsks) {
		s.end()
	}
	late := time.AfterFunc(closeTime, s.end)
	_ = s.client.Close()
	late.Stop()
	s.end()
	s.intake.account.Close()
}

// A broken error is an error of a connection, with its fault.
type broken struct {
	error
	fault *connectionError
}

func (b broken) Unwrap() error { return b.error }

// release returns the memory of what the server sent, once it is used.
func (s *source) release() {
	if s.session != nil {
		s.session.intake.end()
	}
}

// with calls f with a connection to the server, which may send so many bytes. The caller must call release once
// it has used them. After an error that is not an answer of the
// server, and if the connection has ended, the next call connects again.
func (s *source) with(ctx context.Context, most int64, f func(context.Context, *sdk.ClientSession) error) error {
	if s.tool.Berth != nil && s.tool.Berth.Credentials != "" {
		return errNoSecret
	}
	if s.session != nil && !s.session.usable(ctx) {
		s.Close()
	}
	if s.session == nil {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		s.session = c
	}
	fault := s.session.fault
	fault.reset()
	s.session.intake.begin(most)
	err := f(ctx, s.session.client)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && !errors.As(err, new(*jsonrpc.Error)) {
		s.Close()
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
		if s.session != nil {
			s.session.cancelled = true
		}
	}
	return broken{err, fault}
}

// connect connects to the server and initializes the session. The end of ctx ends the
// attempt, but not the session.
func (s *source) connect(ctx context.Context) (*session, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	fault := &connectionError{}
	intake := newIntake(s.opts.Decoding, string(s.caller.Project), fault)
	var client *sdk.ClientSession
	var end func()
	var notified chan struct{}
	var err error
	if s.isCommand() {
		client, end, err = s.connectCommand(life, intake)
	} else {
		notified = make(chan struct{}, 1)
		client, err = s.connectRemote(life, intake, notified)
	}
	if err == nil && !stop() {
		_ = client.Close()
		err = context.Cause(ctx)
	}
	if end == nil {
		end = func() {}
	}
	if err != nil {
		end()
		cancel(nil)
		intake.account.Close()
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}
		return nil, broken{err, fault}
	}
	ended := make(chan struct{})
	go func() {
		_ = client.Wait()
		close(ended)
	}()
	return &session{client: client, fault: fault, intake: intake, ended: ended, notified: notified, end: func() {
		end()
		cancel(nil)
	}}, nil
}

// initialize opens a session on a transport. It offers the server nothing: no sampling, no
// elicitation, no roots. It first speaks the version that servers of all ages know.
func initialize(ctx context.Context, t sdk.Transport) (*sdk.ClientSession, error) {
	client := sdk.NewClient(&sdk.Implementation{Name: "berth", Version: "1"},
		&sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
	session, err := client.Connect(ctx, t, &sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return session, nil
}

// explain returns the server's fault, for the client. It does not show what an
// address answered beyond its HTTP status.
func (s *source) explain(err error) string {
	var list badList
	var b broken
	errors.As(err, &b)
	status, exited, fault := b.fault.get()
	var answer *jsonrpc.Error
	switch {
	case errors.As(err, &list):
		return string(list)
	case errors.Is(err, errNoSecret):
		return "Its headers, authorization or query are not stored, and this server has restarted since the request. Send the request again."
	case errors.Is(err, errTimeout):
		return "It did not answer in time."
	case errors.Is(fault, egress.ErrRefused):
		return "Its host does not exist, or this server may not reach it."
	case errors.Is(fault, errOrigin):
		return "It refers to another host, which this server does not follow."
	case errors.Is(fault, errTooLarge):
		return fmt.Sprintf("It sent a message of more than %d bytes.", maxMessage)
	case errors.Is(fault, errAsks):
		return "It asks too much of its client."
	case errors.Is(fault, errLongList):
		return fmt.Sprintf("Its list of tools has more than %d bytes.", maxList)
	case errors.Is(fault, jsonscan.ErrValues), errors.Is(fault, jsonscan.ErrDepth):
		return "It sent a message that has too many JSON values or is nested too deep."
	case status != 0:
		return fmt.Sprintf("Http status code: %d (%s)", status, http.StatusText(status))
	case exited != "":
		return "Its command ended: " + exited
	case fault == nil && errors.As(err, &answer):
		return tool.Shorten(answer.Message, maxDescription)
	}
	for _, err := range []error{fault, err} {
		if own, ok := errors.AsType[*berth.Error](err); ok {
			return own.Message // of the memory, or of the container
		}
	}
	return "It could not be reached, or does not answer as an MCP server does."
}

// failed returns the result of a call that the server did not answer.
func (s *source) failed(err error) result {
	var b broken
	errors.As(err, &b)
	status, _, fault := b.fault.get()
	var answer *jsonrpc.Error
	switch {
	case errors.Is(err, errTimeout):
		return failure(codeTimeout, fmt.Sprintf("The server did not answer within %s. The call may have run.",
			s.opts.Timeout))
	case fault == nil && status != 0:
		return result{err: &berth.MCPError{Type: berth.MCPHTTPError, Code: &status, Message: http.StatusText(status)}}
	case fault == nil && errors.As(err, &answer):
		return failure(int(answer.Code), tool.Shorten(answer.Message, maxDescription))
	}
	return failure(codeClosed, s.explain(err))
}

// Close implements tool.Source.
func (s *source) Close() {
	if s.session != nil {
		s.session.close()
		s.session = nil
	}
}
