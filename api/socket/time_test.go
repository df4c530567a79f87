package socket

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/store"
)

// noKeys is a store without keys.
type noKeys struct{ store.Keys }

func (noKeys) KeyOf(context.Context, berth.Caller) (*berth.Key, error) { return nil, berth.ErrNotFound }
func (noKeys) ListKeys(context.Context) ([]*berth.Key, error)          { return nil, nil }

// piped is one end of a connection in memory, of a client on this machine.
type piped struct{ net.Conn }

func (piped) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// pipes is a listener for connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dialPipe opens a WebSocket to a server in a synctest bubble. A write to it waits for its
// reader. ended is closed when the server has finished the connection.
func dialPipe(t *testing.T) (conn *websocket.Conn, raw net.Conn, ended <-chan struct{}) {
	t.Helper()
	ex := exchange.New(exchange.Options{Keys: noKeys{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Limits: exchange.Limits{MaxBody: 1 << 20}})
	connect := exchange.On("GET /v1/responses", New(Options{Exchange: ex}).Connect)
	connect.Permission = berth.MayRead
	route := ex.Route(connect)
	handler := ex.Handler(func(x *exchange.Exchange, r *http.Request) { route(x, r) })
	done := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		handler.ServeHTTP(w, r)
	})}
	listener := make(pipes, 1)
	go server.Serve(listener)
	near, far := net.Pipe()
	listener <- piped{far}
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return near, nil
	}}}
	conn, _, err := websocket.Dial(t.Context(), "ws://localhost/v1/responses",
		&websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.CloseNow()
		close(listener)
		server.Close()
		<-done
	})
	return conn, near, done
}

// header returns the header of a client's frame: fin, opcode and length, with a mask of zero.
func header(first byte, size int) []byte {
	b := binary.BigEndian.AppendUint64([]byte{first, 0x80 | 127}, uint64(size))
	return append(b, 0, 0, 0, 0)
}

func isOpen(ended <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-ended:
		return false
	default:
		return true
	}
}

func TestSocketPingsTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, ended := dialPipe(t)
		go func() { // answers pings
			for {
				if _, _, err := conn.Read(context.Background()); err != nil {
					return
				}
			}
		}()
		if time.Sleep(50 * time.Minute); !isOpen(ended) {
			t.Error("a client that answers pings was disconnected")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, raw, ended := dialPipe(t)
		go io.Copy(io.Discard, raw) // reads pings and does not answer
		if time.Sleep(70 * time.Second); !isOpen(ended) {
			t.Error("a silent client was disconnected too early")
		}
		if time.Sleep(20 * time.Second); isOpen(ended) {
			t.Error("a client that does not answer a ping was not disconnected")
		}
	})
}

// A message may take any time as long as bytes arrive. Within a frame, the client cannot
// answer pings.
func TestSocketSlowUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, raw, ended := dialPipe(t)
		go io.Copy(io.Discard, raw)
		if _, err := raw.Write(header(0x81, 100<<10)); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			time.Sleep(40 * time.Second)
			if _, err := raw.Write(make([]byte, 4<<10)); err != nil {
				t.Fatalf("a slow client was given up: %v", err)
			}
		}
		if time.Sleep(59 * time.Second); !isOpen(ended) {
			t.Error("a client that stopped was disconnected too early")
		}
		if time.Sleep(2 * time.Second); isOpen(ended) {
			t.Error("a client that stopped within a message was not disconnected")
		}
	})
}

// The timeout applies to each piece that is sent to a client.
func TestSocketSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, raw, ended := dialPipe(t)
		steer := `{"type":"response.steer","previous_response_id":"resp_1","input":"` + strings.Repeat("x", 320<<10) +
			`"}`
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(steer)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 16<<10)
		for range 10 {
			time.Sleep(15 * time.Second)
			if _, err := io.ReadFull(raw, buf); err != nil {
				t.Fatalf("a slow client was given up: %v", err)
			}
		}
		if time.Sleep(2 * time.Minute); isOpen(ended) {
			t.Error("a client that stopped reading was not disconnected")
		}
	})
}

func TestSocketTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, ended := dialPipe(t)
		go conn.Write(t.Context(), websocket.MessageText, make([]byte, 1<<20+1))
		_, _, err := conn.Read(t.Context())
		if got := websocket.CloseStatus(err); got != websocket.StatusMessageTooBig {
			t.Errorf("got %v, want the connection closed with %d", err, websocket.StatusMessageTooBig)
		}
		if isOpen(ended) {
			t.Error("the connection is still open")
		}
	})
}

func TestSocketTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, _ := dialPipe(t)
		_, data, err := conn.Read(t.Context())
		const want = `"Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue."`
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("got %s, %v, want %s", data, err, want)
		}
		if _, _, err = conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("got %v, want it closed", err)
		}
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Reason == "" {
			t.Errorf("got %v, want a reason", err)
		}
	})
}
