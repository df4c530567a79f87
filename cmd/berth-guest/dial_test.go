package main

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// dial waits for the guest to listen, reports the connection, and copies data until one direction ends.
func TestDial(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	in, toRelay := io.Pipe()
	fromRelay, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- dial(socket, "", in, out) }()

	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server := bufio.NewReader(fromRelay)
	if line, err := server.ReadString('\n'); line != connected || err != nil {
		t.Fatalf("got %q, %v, want %q", line, err, connected)
	}
	go io.WriteString(toRelay, "to the guest\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "to the guest\n" || err != nil {
		t.Errorf("the guest received %q, %v", line, err)
	}
	go io.WriteString(conn, "from the guest\n")
	if line, err := server.ReadString('\n'); line != "from the guest\n" || err != nil {
		t.Errorf("the server received %q, %v", line, err)
	}
	toRelay.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("dial: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("dial did not return after the end of its input")
	}
}

// dial reaches a guest that starts to listen, and creates its log, at any moment.
func TestDialEarly(t *testing.T) {
	for range 300 {
		dir := t.TempDir()
		socket := filepath.Join(dir, "s")
		ended := make(chan error, 1)
		go func() {
			conn, err := dialGuest(socket)
			if err == nil {
				conn.Close()
			}
			ended <- err
		}()
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatalf("got %v", err)
		}
		l.Close()
	}
}

// dial does not wait for a guest that has listened before.
func TestDialGone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := dial(filepath.Join(dir, "s"), "", nil, io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
	if took := time.Since(start); took >= dialTime {
		t.Errorf("dial waited for %v", took)
	}
}
