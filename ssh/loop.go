package ssh

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
)

// A loop is an HTTP server for this process alone. Each of its connections belongs to a caller.
type loop struct {
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
}

type callerKey struct{}

// A callerConn is a connection of a caller.
type callerConn struct {
	net.Conn
	caller berth.Caller
}

// CloseWrite lets forwarded connections be half closed.
func (c *callerConn) CloseWrite() error { return c.Conn.(*net.UnixConn).CloseWrite() }

func newLoop(api func(berth.Caller) http.Handler, log *slog.Logger) *loop {
	l := &loop{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			api(r.Context().Value(callerKey{}).(berth.Caller)).ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, c.(*callerConn).caller)
		},
		ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() { _ = l.server.Serve(l) }()
	return l
}

// Accept implements net.Listener, as Close and Addr do.
func (l *loop) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *loop) Close() error   { return nil }
func (l *loop) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

func (l *loop) close() error {
	close(l.closed)
	if err := l.server.Close(); err != nil {
		return fmt.Errorf("close the way to the API: %w", err)
	}
	return nil
}

// client returns a client of the API for a caller. release closes its connections.
func (l *loop) client(c berth.Caller) (client *http.Client, release func()) {
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, c) }}
	return &http.Client{Transport: t}, t.CloseIdleConnections
}

func (l *loop) dial(ctx context.Context, c berth.Caller) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to the API: %w", err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "ssh")
		end, connErr := net.FileConn(f)
		f.Close()
		if connErr != nil {
			err = connErr
			continue
		}
		ends[i] = end
	}
	if err == nil {
		select {
		case l.conns <- &callerConn{ends[1], c}:
			return ends[0], nil
		case <-l.closed:
			err = net.ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	for _, end := range ends {
		if end != nil {
			end.Close()
		}
	}
	return nil, fmt.Errorf("connect to the API: %w", err)
}
