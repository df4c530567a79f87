package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestCompose(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	s := &Server{owner: identity{name: "me", home: dir, uid: os.Getuid(), gid: os.Getgid()},
		opts: Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compose := func(want int, body string) string {
		t.Helper()
		w := httptest.NewRecorder()
		s.compose(w, httptest.NewRequest("POST", "/files/compose", strings.NewReader(body)))
		if w.Code != want {
			t.Errorf("%s: got %d %s, want %d", body, w.Code, w.Body, want)
		}
		return w.Body.String()
	}
	long := strings.Repeat("x", fileBuffer+1)
	write("a", "one,")
	write("b", "")
	write("c", long)
	if got, want := compose(200,
		`{"source_paths":["a","~/b","`+at("c")+`"],"destination":"new/dir/all"}`),
		`{"name":"all","path":"`+at("new/dir/all")+`","type":"file"}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if text, err := os.ReadFile(at("new/dir/all")); err != nil || string(text) != "one,"+long {
		t.Errorf("the composed file has %d bytes, %v", len(text), err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := os.Stat(at(name)); !os.IsNotExist(err) {
			t.Errorf("source %s: %v", name, err)
		}
	}

	write("a", "one")
	write("old", "old")
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(at("old"), at("same")); err != nil {
		t.Fatal(err)
	}
	compose(400, `{"source_paths":[],"destination":"old"}`)
	compose(400, `{"source_paths":["a"]}`)
	compose(400, `{"source_paths":["a",""],"destination":"old"}`)
	compose(400, `{"source_paths":["a","old"],"destination":"old"}`)
	compose(400, `{"source_paths":["a","same"],"destination":"old"}`)
	compose(400, `{"source_paths":["a","new"],"destination":"old"}`)
	compose(400, `{"source_paths":["a","fifo"],"destination":"old"}`)
	compose(400, `{"source_paths":["a","/dev/zero"],"destination":"old"}`)
	compose(400, `{"source_paths":["a"],"destination":"new"}`)
	compose(400, `{"source_paths":["a"],"destination":"old"`)
	compose(400, `{"source_paths":["`+strings.Repeat("a", maxComposeBody)+`"],"destination":"old"}`)
	compose(404, `{"source_paths":["a","none"],"destination":"old"}`)
	if os.Getuid() == 0 {
		compose(http.StatusUnauthorized, `{"source_paths":["a"],"destination":"old","username":"no-such-user"}`)
	}
	for name, want := range map[string]string{"a": "one", "old": "old"} {
		if text, err := os.ReadFile(at(name)); err != nil || string(text) != want {
			t.Errorf("after refusals, %s is %q, %v", name, text, err)
		}
	}
	compose(200, `{"source_paths":["a"],"destination":"old"}`)
	if text, err := os.ReadFile(at("old")); err != nil || string(text) != "one" {
		t.Errorf("the replaced file is %q, %v", text, err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 4 { // fifo, new, old, same
		t.Errorf("left: %v, %v", names, err)
	}
}
