package guest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/yamux"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
	"github.com/berth-run/berth/guest/guestpb/berth/guest/v1/guestv1connect"
	"github.com/berth-run/berth/guest/guestpb/filesystem/filesystemconnect"
	"github.com/berth-run/berth/guest/guestpb/process/processconnect"
)

// A verbose guest fails with endless error texts.
type verbose struct {
	guestv1connect.UnimplementedGuestHandler
	guestv1connect.UnimplementedShellHandler
	filesystemconnect.UnimplementedFilesystemHandler
	processconnect.UnimplementedProcessHandler
}

var novel = strings.Repeat("words\n", 1<<18)

func (verbose) SetNetwork(context.Context,
	*connect.Request[v1.SetNetworkRequest]) (*connect.Response[v1.SetNetworkResponse], error) {
	return connect.NewResponse(&v1.SetNetworkResponse{Unroutable: novel}), nil
}

func (verbose) Info(context.Context, *connect.Request[v1.InfoRequest]) (*connect.Response[v1.InfoResponse], error) {
	return nil, connect.NewError(connect.CodeNotFound, errors.New(novel))
}

func (verbose) Run(context.Context, *connect.Request[v1.RunRequest], *connect.ServerStream[v1.RunResponse]) error {
	return connect.NewError(connect.CodeInternal, errors.New(novel))
}

// Errors of a guest are short, because each of them may be logged.
func TestFailuresInFewWords(t *testing.T) {
	ours, theirs := net.Pipe()
	session, err := yamux.Server(theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	mux := http.NewServeMux()
	mux.Handle(guestv1connect.NewGuestHandler(verbose{}))
	mux.Handle(guestv1connect.NewShellHandler(verbose{}))
	go http.Serve(session, mux)
	c := NewClient(func(context.Context) (net.Conn, error) { return ours, nil })
	defer c.Close()
	if _, err := c.Info(t.Context()); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v, want it as not found", connect.CodeOf(err))
	}
	for i, ask := range []func() error{
		func() error { _, err := c.Info(t.Context()); return err },
		func() error {
			stream, err := c.shell.Run(t.Context(), connect.NewRequest(&v1.RunRequest{}))
			if err != nil {
				return err
			}
			defer stream.Close()
			if stream.Receive() {
				return nil
			}
			return stream.Err()
		},
		func() error {
			_, err := c.outward(t.Context(), http.NotFoundHandler(), Network{Addresses: Needed})
			return err
		},
	} {
		err := ask()
		if err == nil || len(err.Error()) > 2*maxWords || !strings.Contains(err.Error(), "words") {
			t.Errorf("%d: got an error of %d bytes", i, len(err.Error()))
		}
	}
}

// A hasty guest says that the deadline of a call has passed when it has not.
type hasty struct{ verbose }

func (hasty) Info(context.Context, *connect.Request[v1.InfoRequest]) (*connect.Response[v1.InfoResponse], error) {
	return nil, connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
}

func (hasty) Run(context.Context, *connect.Request[v1.RunRequest], *connect.ServerStream[v1.RunResponse]) error {
	return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
}

// When a call ends with its deadline, the caller's context has ended too: a guest's timer may fire first.
func TestDeadlineOfTheCaller(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(guestv1connect.NewGuestHandler(hasty{}))
	mux.Handle(guestv1connect.NewShellHandler(hasty{}))
	s := httptest.NewServer(mux)
	defer s.Close()
	c := NewHTTPClient(s.URL, s.Client())
	for name, ask := range map[string]func(context.Context) error{
		"info": func(ctx context.Context) error { _, err := c.Info(ctx); return err },
		"shell": func(ctx context.Context) error {
			for _, err := range c.Shell(ctx, ShellCall{CallID: "1", Commands: []string{"true"}}) {
				return err
			}
			return nil
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := ask(ctx)
		if ctx.Err() == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v before the end of the context", name, err)
		}
		cancel()
	}
}
