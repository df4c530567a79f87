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

// TestPauseOfABusyOne pauses a sandbox whose control group does not freeze at first: a proxy
// before a real engine returns that error.
func TestPauseOfABusyOne(t *testing.T) {
	engine := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(dockertest.Host(t), "unix://"))
		}},
		FlushInterval: -1,
	}
	var requests, refusals atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pause") && requests.Add(1) <= refusals.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			w.Write([]byte(
				`{"message":"Cannot pause container x: OCI runtime pause failed: unable to freeze: unknown"}`))
			return
		}
		engine.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	d := openTest(t, drivertest.StateDir(t), Options{Host: strings.Replace(front.URL, "http://", "tcp://", 1)})
	b := drivertest.Start(t, d, sandbox.Spec{ID: "busy", Template: drivertest.Template(t)})
	refusals.Store(2)
	if err := d.Pause(t.Context(), b.ID); err != nil || requests.Load() != 3 {
		t.Errorf("got %v after %d attempts, want success at the third", err, requests.Load())
	}
	if st := b.Stats(); st.State != sandbox.StatePaused {
		t.Errorf("got %q, want %q", st.State, sandbox.StatePaused)
	}
	if err := d.Pause(t.Context(), b.ID); err == nil || requests.Load() != 4 {
		t.Errorf("a paused sandbox: got %v after %d attempts, want an error at once", err, requests.Load()-3)
	}
}
