// Package listener forwards connections to a port of a container's loopback over a pair of streams. Its other end is
// package ssh, which passes them on to a client.
package listener

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/hashicorp/yamux"
)

// maxConns bounds the connections that wait for the client or are carried.
const maxConns = 256

// A pipe is two streams as a connection.
type pipe struct {
	io.Reader
	io.Writer
}

func (pipe) Close() error { return nil }

// Serve listens on a port, or on any if it is 0. It writes the port as a line to out, and carries each connection as a
// stream of yamux over in and out, until in ends.
func Serve(port string, in io.Reader, out io.Writer) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q is not a port", port)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	if _, err := fmt.Fprintf(out, "%d\n", l.Addr().(*net.TCPAddr).Port); err != nil {
		return fmt.Errorf("write the port: %w", err)
	}
	config := yamux.DefaultConfig()
	config.LogOutput, config.EnableKeepAlive = io.Discard, false
	mux, err := yamux.Client(pipe{in, out}, config)
	if err != nil {
		return fmt.Errorf("carry connections: %w", err)
	}
	go func() {
		<-mux.CloseChan()
		l.Close()
	}()
	room := make(chan struct{}, maxConns)
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil // the client has left
		}
		select {
		case room <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		go func() {
			defer func() { <-room }()
			carry(mux, conn)
		}()
	}
}

// carry carries a connection. Either side ends its half first.
func carry(mux *yamux.Session, conn net.Conn) {
	defer conn.Close()
	stream, err := mux.Open()
	if err != nil {
		return
	}
	defer stream.Close()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(stream, conn)
		stream.Close() // for writing; yamux reads on
	})
	both.Go(func() {
		if _, err := io.Copy(conn, stream); err != nil {
			conn.Close()
			return
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	})
	both.Wait()
}
