package e2e

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/openai/openai-go/v3"
)

// TestDesktopView watches a desktop by the URLs of berth desktop. That of a viewer must not move
// the mouse, whatever its client sends.
func TestDesktopView(t *testing.T) {
	s := newDesktopServer(t, "template: desktop\n")
	c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "desk"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		flags []string
		moves bool
	}{{nil, false}, {[]string{"--control"}, true}} {
		out, errs, err := s.berth(append(append([]string{"desktop"}, tc.flags...), c.ID)...)
		if err != nil {
			t.Fatal(err, errs)
		}
		url := strings.TrimSuffix(strings.TrimSpace(out), "/") + "/"
		for _, path := range []string{"", "novnc/core/rfb.js"} {
			resp, err := http.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "RFB") {
				t.Errorf("%s: %s %.100s", path, resp.Status, body)
			}
		}
		s.place(c.ID, "xdotool mousemove 10 20")
		conn := dialVNC(t, url)
		// PointerEvent at (200, 100), then FramebufferUpdateRequest of one pixel: the server answers it
		// after it has read the event.
		if _, err := conn.Write([]byte{5, 0, 0, 200, 0, 100, 3, 0, 0, 0, 0, 0, 0, 1, 0, 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		want := "x:10 y:20"
		if tc.moves {
			want = "x:200 y:100"
			s.waitUntil("the mouse has moved", func() bool { return strings.Contains(s.place(c.ID, ""), want) })
		}
		if got := s.place(c.ID, ""); !strings.Contains(got, want) {
			t.Errorf("%v: the mouse is at %s, want %s", tc.flags, got, want)
		}
		conn.Close()
	}
	base, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, err := s.berth("exec", base.ID, "sudo", "rm", "/usr/local/bin/berth-desktop-view"); err != nil {
		t.Fatal(errs)
	}
	if _, errs, err := s.berth("desktop", base.ID); err == nil || !strings.Contains(errs, "has no desktop") {
		t.Errorf("without the program: %v %s", err, errs)
	}
}

// place runs a command in a container, and returns the place of its mouse.
func (s *server) place(container, command string) string {
	s.t.Helper()
	out, errs, err := s.berth("exec", container, "sh", "-c", "export DISPLAY=:0; "+command+"\nxdotool getmouselocation")
	if err != nil {
		s.t.Fatal(err, errs)
	}
	return out
}

// dialVNC opens a session with the VNC server behind a page of berth desktop.
func dialVNC(t *testing.T, page string) net.Conn {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(page, "http")+"websockify",
		&websocket.DialOptions{Subprotocols: []string{"binary"}})
	if err != nil {
		t.Fatal(err)
	}
	conn := websocket.NetConn(t.Context(), ws, websocket.MessageBinary)
	t.Cleanup(func() { conn.Close() })
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	send := func(b ...byte) {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if version := string(read(12)); !strings.HasPrefix(version, "RFB 003.") {
		t.Fatalf("the server sent %q", version)
	}
	send([]byte("RFB 003.008\n")...)
	read(int(read(1)[0])) // the kinds of security
	send(1)               // none
	if result := read(4); result[3] != 0 {
		t.Fatalf("the server refused the session: %v", result)
	}
	send(1) // shared
	head := read(24)
	if w, h := int(head[0])<<8|int(head[1]), int(head[2])<<8|int(head[3]); w != 1024 || h != 768 {
		t.Errorf("the desktop has %d × %d pixels", w, h)
	}
	read(int(head[22])<<8 | int(head[23])) // its name
	return conn
}
