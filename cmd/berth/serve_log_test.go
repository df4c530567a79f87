package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// A lines is a log that is safe for concurrent reads and writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A server in a sandbox that sends an unsolicited response makes net/http log a message, which goes to
// the debug level.
func TestUnsolicitedAnswers(t *testing.T) {
	t.Cleanup(func() { stdlog.SetFlags(stdlog.LstdFlags); stdlog.SetOutput(os.Stderr) })
	var fine, usual lines
	for log, level := range map[*lines]slog.Level{&fine: slog.LevelDebug, &usual: slog.LevelInfo} {
		adoptLog(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})))
		closed := make(chan struct{})
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer close(closed)
				if _, err := there.Read(make([]byte, 4<<10)); err != nil {
					return
				}
				fmt.Fprint(there, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				fmt.Fprint(there, "HTTP/1.1 200 OK\nlevel=ERROR msg=forged\r\n\r\n")
				_, _ = io.Copy(io.Discard, there) // until the other side closes the connection
			}()
			return here, nil
		}}
		resp, err := (&http.Client{Transport: transport}).Get("http://sandbox/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Fatal("the connection stays open")
		}
	}
	if got := fine.String(); !strings.Contains(got, "level=DEBUG msg=\"Unsolicited response") ||
		strings.Count(got, "\n") != 1 {
		t.Errorf("at debug level: got %q, want one line", got)
	}
	if got := usual.String(); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
}
