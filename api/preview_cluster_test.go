package api_test

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// elsewhere is a cluster whose other server gets the requests that are forwarded.
type elsewhere struct {
	cluster.Solo
	got chan *http.Request
}

func (elsewhere) Alone() bool { return false }

func (e elsewhere) Forward(w http.ResponseWriter, r *http.Request, _ *berth.Caller, _ string) error {
	e.got <- r.Clone(context.Background())
	w.WriteHeader(http.StatusOK)
	return nil
}

// The server that has the container of a preview identifies the caller again, so it gets the token of the link and the
// key as the client has sent them.
func TestPreviewHostElsewhere(t *testing.T) {
	t.Parallel()
	other := elsewhere{got: make(chan *http.Request, 1)}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "other.db"), nil)
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	const id = berth.ContainerID("cntr_0123456789abcdef0123456789abcdef0123456789abcdef")
	check(t, db.CreateContainer(t.Context(), &store.Container{Project: "proj_1", Body: &berth.Container{ID: id,
		Status: berth.ContainerRunning, Berth: berth.ContainerBerth{Server: "b"}}}))
	h := newHouse(t, func(o *api.Options) {
		o.Preview.Domain, o.Exchange.Placement = "preview.example", other
		log := slog.New(slog.DiscardHandler)
		record, err := audit.Open(t.TempDir(), log)
		check(t, err)
		t.Cleanup(func() { check(t, record.Close()) })
		o.Containers, err = container.New(container.Options{Store: db, Server: "a", Audit: record, OpenFile: o.Files.Open,
			Driver: &guestDriver{t: t, boxes: map[string]*box{}}, Log: log,
			Seal: seal.New([32]byte{1}), Template: func(string) (container.Template, error) {
				return container.Template{Template: sandbox.Template{Path: t.TempDir()}}, nil
			}})
		check(t, err)
	})
	h.key("sk-secret", "proj_1")
	link, _ := h.call(200, "POST", "/v1/containers/"+string(id)+"/ports/80", ``)["host_url"].(string)
	r, err := http.NewRequestWithContext(t.Context(), "GET", link, http.NoBody)
	check(t, err)
	host, query := r.URL.Host, r.URL.RawQuery
	for name, header := range map[string][]string{
		"with the link's token": {},
		"with a key":            {"Authorization", "Bearer sk-secret"},
	} {
		path := "/page"
		if len(header) == 0 {
			path += "?a=1&" + query
		}
		resp, text := visitHost(t, "GET", h.url, host, path, header...)
		if resp.StatusCode != 200 {
			t.Fatalf("%s: got %d %s", name, resp.StatusCode, text)
		}
		got := <-other.got
		if got.URL.RequestURI() != path || got.Host != host {
			t.Errorf("%s: the other server got %s%s, want %s", name, got.Host, got.URL.RequestURI(), path)
		}
		if len(header) > 0 && got.Header.Get("Authorization") != header[1] {
			t.Errorf("%s: the other server got Authorization %q", name, got.Header.Get("Authorization"))
		}
	}
}

// The head of an answer that breaks off after it reaches the client: a connection that ends without an answer makes
// clients repeat the request.
func TestPortHead(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(*api.Options) {})
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	port := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		check(t, http.NewResponseController(w).Flush())
		panic(http.ErrAbortHandler)
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 300 {
		resp, err := client.Get(h.url + "/v1/containers/" + id + "/ports/" + port + "/")
		if err != nil {
			t.Fatalf("the head was lost: %v", err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusBadGateway {
			t.Fatalf("got %s", resp.Status)
		}
	}
}
