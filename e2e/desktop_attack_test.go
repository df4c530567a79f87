package e2e

import (
	"bytes"
	bits "encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A viewer is who holds the URL of a desktop's page.
type viewer struct {
	t   *testing.T
	url string // of the page, with a slash at its end
}

// newViewer returns a holder of a URL that berth desktop prints.
func (s *server) newViewer(args ...string) viewer {
	s.t.Helper()
	out, errs, err := s.berth(append([]string{"desktop"}, args...)...)
	if err != nil {
		s.t.Fatal(err, errs)
	}
	return viewer{s.t, strings.TrimSuffix(strings.TrimSpace(out), "/") + "/"}
}

// status returns the status of a request below the page, or of a WebSocket there. The path is sent as it is.
func (v viewer) status(path string, header ...string) int {
	v.t.Helper()
	host, base, _ := strings.Cut(strings.TrimPrefix(v.url, "http://"), "/")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		v.t.Fatal(err)
	}
	defer conn.Close()
	request := "GET /" + base + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(header, "\r\n")
	if len(header) > 0 {
		request += "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		v.t.Fatal(err)
	}
	line := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, line); err != nil {
		v.t.Fatal(err)
	}
	return int(line[9]-'0')*100 + int(line[10]-'0')*10 + int(line[11]-'0')
}

// upgrade are the header fields of a browser's WebSocket.
func upgrade(more ...string) []string {
	return append([]string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: binary"}, more...)
}

// TestDesktopViewAttacks attacks a desktop by the URL of its viewer: with the URL itself, with the messages of its
// client, and after the end of the key that made it.
func TestDesktopViewAttacks(t *testing.T) {
	s := newDesktopServer(t, "template: desktop\n")
	s.key = s.createKey("--project", "proj_a")
	foreign := s.createKey("--project", "proj_b")
	s.waitUntil("keys are required", func() bool {
		resp, err := http.Get(s.url + "/v1/models")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	})
	id := s.namedContainer("desk")
	view, control := s.newViewer(id), s.newViewer("--control", id)

	t.Run("Address", func(t *testing.T) {
		view.t = t
		port := viewer{t, s.url + "/v1/containers/" + id + "/ports/6081/"}
		// 307 leads to the path without the climb, of this server: to /v1/… without a key, or to no link.
		for name, tt := range map[string]struct{ got, want int }{
			"its page":                        {view.status(""), 200},
			"its socket":                      {view.status("websockify", upgrade()...), 101},
			"a socket without the link":       {port.status("websockify", upgrade()...), 401},
			"a socket with another's key":     {port.status("websockify", upgrade("Authorization: Bearer "+foreign)...), 404},
			"a link with another letter":      {viewer{t, flip(view.url)}.status("websockify", upgrade()...), 401},
			"a cut link":                      {viewer{t, view.url[:len(view.url)-9] + "/"}.status("", upgrade()...), 401},
			"control by climbing":             {view.status("../../v1/containers/" + id + "/ports/6080/"), 307},
			"a file by climbing":              {view.status("novnc/../../../etc/passwd"), 307},
			"a file by climbing, escaped":     {view.status("%2e%2e/%2e%2e/%2e%2e/etc/passwd"), 404},
			"a file by two slashes":           {view.status("/etc/passwd"), 307},
			"another port of the loopback":    {view.status("http://127.0.0.1:6080/"), 307},
			"a token of websockify":           {view.status("websockify?token=127.0.0.1:5900", upgrade()...), 101},
			"an upgrade to another protocol":  {view.status("websockify", "Connection: Upgrade", "Upgrade: h2c"), 404},
			"a service worker of the desktop": {view.status("", "Service-Worker: script"), 403},
		} {
			if tt.got != tt.want {
				t.Errorf("%s: got %d, want %d", name, tt.got, tt.want)
			}
		}
	})
	t.Run("Clipboard", func(t *testing.T) {
		viewing, using := dialVNC(t, view.url), dialVNC(t, control.url)
		s.place(id, "printf owner | xclip -selection clipboard -i >/dev/null 2>&1; printf owner | xclip -i >/dev/null 2>&1")
		if kind, text := readMessage(t, using); kind != 3 || text != "owner" {
			t.Fatalf("who uses the desktop gets the message %d %q", kind, text)
		}
		send(t, viewing, cutText("of the viewer"), anyPixel)
		if kind, text := readMessage(t, viewing); kind != 0 {
			t.Errorf("who looks at the desktop gets the message %d %q", kind, text)
		}
		for _, selection := range []string{"clipboard", "primary"} {
			out, errs, err := s.berth("exec", id, "sh", "-c", "DISPLAY=:0 xclip -o -selection "+selection)
			if err != nil || out != "owner" {
				t.Errorf("%s: got %q, %v %s; the viewer changed it", selection, out, err, errs)
			}
		}
	})
	t.Run("Messages", func(t *testing.T) {
		s.place(id, "xdotool mousemove 10 20")
		for name, message := range map[string][]byte{
			"4 GiB of clipboard":         append([]byte{6, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, make([]byte, 1<<20)...),
			"a negative clipboard":       {6, 0, 0, 0, 0x80, 0, 0, 0},
			"65535 encodings":            append([]byte{2, 0, 0xff, 0xff}, make([]byte, 4*0xffff)...),
			"an unknown message":         {0xfa, 1, 2, 3},
			"a screen of 65535 × 65535":  {251, 0, 0xff, 0xff, 0xff, 0xff, 1, 0},
			"updates out of the screen":  {3, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
			"no bits in a pixel":         {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
			"a transfer of files":        {7, 3, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},
			"a scale of 1 : 255":         {8, 255, 0, 0},
			"a key":                      {4, 1, 0, 0, 0, 0, 0, 'a'},
			"input of the server off":    {11, 1, 0, 0},
			"a single window of another": {10, 1, 0, 0, 0, 0},
		} {
			conn := dialVNC(t, view.url)
			_, _ = conn.Write(message) // the server may close the connection before the end
			conn.Close()
			if got := s.place(id, ""); !strings.Contains(got, "x:10 y:20 ") {
				t.Errorf("%s: the mouse is at %s", name, got)
			}
			if view.status("") != http.StatusOK {
				t.Errorf("%s: the viewer's page is gone", name)
			}
			dialVNC(t, view.url).Close() // the server still serves
		}
	})
	t.Run("Frames", func(t *testing.T) {
		for name, frame := range map[string][]byte{
			"2⁶³-1 bytes":      {0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
			"2⁶⁴-1 bytes":      {0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
			"without a mask":   {0x82, 4, 1, 2, 3, 4},
			"a reserved bit":   {0xf2, 0x80, 0, 0, 0, 0},
			"an endless text":  bytes.Repeat([]byte{0x01, 0x81, 0, 0, 0, 0, 'a'}, 1<<18),
			"a flood of pings": bytes.Repeat(append([]byte{0x89, 0xfd, 0, 0, 0, 0}, make([]byte, 125)...), 1<<14),
		} {
			before := s.peak()
			host, base, _ := strings.Cut(strings.TrimPrefix(view.url, "http://"), "/")
			conn, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "GET /"+base+"websockify HTTP/1.1\r\nHost: "+host+"\r\n"+
				strings.Join(upgrade(), "\r\n")+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // pongs fill the way back
			_, _ = conn.Write(frame)
			conn.Close()
			dialVNC(t, view.url).Close()
			if grown := s.peak() - before; grown > 64<<20 {
				t.Errorf("%s: the server grew by %d MiB", name, grown>>20)
			}
		}
	})
	t.Run("KeyEnds", func(t *testing.T) {
		conn, closed := dialVNC(t, control.url), make(chan error, 1)
		var key struct{ ID string }
		out, errs, err := s.berth("key", "ls", "--json", "--project", "proj_a", "--state", s.state)
		if err != nil {
			t.Fatal(err, errs)
		}
		if err := json.Unmarshal([]byte(out), &key); err != nil {
			t.Fatal(err, out)
		}
		go func() {
			_, err := io.Copy(io.Discard, conn)
			closed <- err
		}()
		if _, errs, err := s.berth("key", "rm", key.ID, "--state", s.state); err != nil {
			t.Fatal(err, errs)
		}
		<-closed // the test's own deadline bounds it
		for _, v := range []viewer{view, control} {
			if got := v.status("websockify", upgrade()...); got != http.StatusUnauthorized {
				t.Errorf("with a deleted key: got %d, want 401", got)
			}
		}
	})
}

// flip changes a letter of the link in a URL.
func flip(url string) string {
	at := len(url) - 20
	letter := byte('A')
	if url[at] == letter {
		letter = 'B'
	}
	return url[:at] + string(letter) + url[at+1:]
}

// anyPixel requests one pixel: the server answers after it has read what came before.
var anyPixel = []byte{3, 0, 0, 0, 0, 0, 0, 1, 0, 1}

// cutText is a message with a new clipboard.
func cutText(text string) []byte {
	return append(bits.BigEndian.AppendUint32([]byte{6, 0, 0, 0}, uint32(len(text))), text...)
}

func send(t *testing.T, conn net.Conn, messages ...[]byte) {
	t.Helper()
	for _, m := range messages {
		if _, err := conn.Write(m); err != nil {
			t.Fatal(err)
		}
	}
}

// readMessage reads the kind of a VNC server's message, and the text of a clipboard.
func readMessage(t *testing.T, conn net.Conn) (kind byte, text string) {
	t.Helper()
	read := func(n uint32) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if kind = read(1)[0]; kind == 3 {
		text = string(read(bits.BigEndian.Uint32(read(7)[3:])))
	}
	return kind, text
}
