package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// berth run waits for the server of its state directory that starts, and names the one that listens elsewhere.
func TestRunAwaitsAServerThatStarts(t *testing.T) {
	dir := t.TempDir()
	lock := func(pid int) {
		if err := os.WriteFile(filepath.Join(dir, "lock"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lock(os.Getpid())
	requests := 0
	answers := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if answers != http.StatusOK {
			lock(1 << 30) // no process has this id
		}
		w.WriteHeader(answers)
	}))
	defer server.Close()
	c := newClient(server.URL, false)
	if err := c.await(t.Context(), dir); err != nil || requests != 2 {
		t.Errorf("got %v after %d requests", err, requests)
	}
	answers = http.StatusNotFound
	if err := c.await(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "name its address with --url") {
		t.Errorf("a server that is gone: got %v", err)
	}
}
