package docker

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestPauseOfABusyOne pauses a sandbox whose control group does not freeze at first: a
// real engine, before which stands one that gives its answer of that case.
func TestPauseOfABusyOne(t *testing.T) {
	engine := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(dockertest.Host(t), "unix://"))
		}},
		FlushInterval: -1,
	}
	var asked, refusals atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pause") && asked.Add(1) <= refusals.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			w.Write([]byte(`{"message":"Cannot pause container x: OCI runtime pause failed: unable to freeze: unknown"}`))
			return
		}
		engine.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	d := openTest(t, drivertest.StateDir(t), Options{Host: strings.Replace(front.URL, "http://", "tcp://", 1)})
	b := drivertest.Start(t, d, sandbox.Spec{ID: "busy", Template: drivertest.Template(t)})
	refusals.Store(2)
	if err := d.Pause(t.Context(), b.ID); err != nil || asked.Load() != 3 {
		t.Errorf("got %v after %d attempts, want a pause at the third", err, asked.Load())
	}
	if st := b.Stats(); st.State != sandbox.StatePaused {
		t.Errorf("got %q, want %q", st.State, sandbox.StatePaused)
	}
	if err := d.Pause(t.Context(), b.ID); err == nil || asked.Load() != 4 {
		t.Errorf("of one that is paused: got %v after %d attempts, want a refusal at once", err, asked.Load()-3)
	}
}
