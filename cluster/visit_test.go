package cluster_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/store"
)

// A visit carries bytes both ways between servers, with the end of each direction, and tells which rule forbids one.
func TestVisit(t *testing.T) {
	db := openStore(t)
	here := make(chan net.Conn, 1) // the ends of containers of b
	var asked cluster.Visit
	connect := func(id string) *cluster.Peers {
		listen := freeport.Addr(t)
		p, err := cluster.Connect(t.Context(), [32]byte{}, cluster.Options{Store: db,
			Self: store.Member{ID: id, Address: listen}, Lease: time.Minute, Silence: time.Hour,
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		stop, err := p.Serve(t.Context(), listen, nil, nil, func(_ context.Context, v cluster.Visit) (net.Conn, error) {
			switch asked = v; v.Port {
			case 1:
				return nil, berth.Errorf(berth.CodeConflict, "the neighbour is paused")
			case 2:
				return nil, errors.New("secret detail")
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					t.Error(err)
				}
				here <- conn
			}()
			return net.Dial("tcp", l.Addr().String())
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(stop(context.Background()), p.Close(context.Background())); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	connect("b")
	a := connect("a")
	v := cluster.Visit{Project: "proj_1", From: "cntr_1", Container: "cntr_2", Group: "task-7", Port: 5432}
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := a.Visit(ctx, "b", v)
	if err != nil {
		t.Fatal(err)
	}
	if asked != v {
		t.Errorf("got %+v, want %+v", asked, v)
	}
	cancel() // only bounds the start
	inner := <-here
	ours, theirs := conn, inner // for goroutines
	big := strings.Repeat("0123456789", 1<<16)
	if err := conn.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(ours, big)
		_ = ours.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if got, err := io.ReadAll(inner); err != nil || string(got) != big {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	go func() {
		_, _ = io.WriteString(theirs, big)
		theirs.Close()
	}()
	if got, err := io.ReadAll(conn); err != nil || string(got) != big {
		t.Errorf("back: got %d bytes, %v", len(got), err)
	}
	conn.Close()

	// The end of one side ends the other.
	if conn, err = a.Visit(t.Context(), "b", v); err != nil {
		t.Fatal(err)
	}
	inner = <-here
	conn.Close()
	if _, err := io.Copy(io.Discard, inner); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	inner.Close()
	// So does a deadline that passes.
	if conn, err = a.Visit(t.Context(), "b", v); err != nil {
		t.Fatal(err)
	}
	inner = <-here
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err == nil {
		t.Error("a connection outlives its deadline")
	}
	inner.Close()

	v.Port = 1
	if _, err := a.Visit(t.Context(), "b", v); berth.ErrorCode(err) != berth.CodeConflict ||
		!strings.Contains(err.Error(), "paused") {
		t.Errorf("a rule: got %v", err)
	}
	v.Port = 2
	if _, err := a.Visit(t.Context(), "b", v); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a failure: got %v", err)
	}
	if _, err := a.Visit(t.Context(), "c", v); err == nil {
		t.Error("a server that is no member answers")
	}
}
