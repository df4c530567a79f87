package cluster_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/store"
)

// The head of a forwarded answer that breaks off after it reaches the client: a connection that ends without an answer
// makes clients repeat the request.
func TestForwardedHead(t *testing.T) {
	db := openStore(t)
	connect := func(id string) *cluster.Peers {
		listen := freeport.Addr(t)
		p, err := cluster.Connect(t.Context(), [32]byte{}, cluster.Options{Store: db,
			Self: store.Member{ID: id, Address: listen}, Lease: time.Minute, Silence: time.Hour,
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		stop, err := p.Serve(t.Context(), listen, func(w http.ResponseWriter, _ *http.Request, _ *berth.Caller) {
			w.WriteHeader(http.StatusOK)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := stop(context.Background()); err != nil {
				t.Error(err)
			}
			if err := p.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	connect("b")
	a := connect("a")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.Forward(w, r, nil, "b"); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 300 {
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Fatalf("the head was lost: %v", err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || err == nil {
			t.Fatalf("got %s, then %v; want an answer that breaks off", resp.Status, err)
		}
	}
}
