package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// Profiles show memory of all projects: other machines and web pages get none.
func TestProfiles(t *testing.T) {
	s := &Server{log: slog.New(slog.DiscardHandler)}
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0"} {
		if _, err := s.servePprof(addr); err == nil || !strings.Contains(err.Error(), "pprof.listen") {
			t.Errorf("%s: got error %v, want it refused", addr, err)
		}
	}
	at, err := s.servePprof("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := at.String()
	t.Cleanup(func() { s.Close(context.WithoutCancel(t.Context())) })
	for host, status := range map[string]int{addr: http.StatusOK, "evil.example": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/debug/pprof/goroutine?debug=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != status || (status == http.StatusOK) != strings.Contains(string(body),
			"goroutine profile") {
			t.Errorf("%s: got %d %.200s, %v; want %d", host, resp.StatusCode, body, err, status)
		}
	}
}
