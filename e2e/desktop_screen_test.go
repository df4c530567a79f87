package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	permission "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
)

// hostile are the lies of testdata/hostile_screen.py.
var hostile = []string{"screen", "name", "markup", "clipboard", "text", "resize", "beyond", "cursor", "count",
	"unknown", "bells"}

// TestDesktopHostileScreen attacks who looks at a desktop, from the sandbox: with a VNC server that lies to the page of
// berth desktop in Chromium, with a page that attacks by itself, and with a screen that never ends for a viewer that
// does not read.
func TestDesktopHostileScreen(t *testing.T) {
	s := newDesktopServer(t, "template: desktop\n")
	id := s.newContainer("hostile_screen.py", "attack.html")
	page := s.newViewer(id).url
	s.in(id, `pkill -f "[w]ebsockify.*6081"; while curl -s localhost:6081; do sleep 0.1; done >/dev/null
nohup python3 hostile_screen.py 6081 >served.log 2>&1 & until curl -sf localhost:6081/bells/ >/dev/null; do sleep 0.1; done`)

	t.Run("Unread", func(t *testing.T) {
		before := s.peak()
		conn := dialScreen(t, page+"endless/")
		s.waitUntil("the screen cannot send more", func() bool {
			how, _ := s.ended(id, "endless")
			return how == "stalled"
		})
		if _, sent := s.ended(id, "endless"); sent > 64<<20 {
			t.Errorf("%d MiB were taken for a viewer that does not read", sent>>20)
		}
		if grown := s.peak() - before; grown > 64<<20 {
			t.Errorf("the server grew by %d MiB", grown>>20)
		}
		conn.Close()
		s.in(id, "rm ends")
	})

	b := newBrowser(t, 1000)
	t.Run("Page", func(t *testing.T) {
		b.t = t
		b.open(s.url + "/console/")
		b.open(page + "page/")
		b.click("#start")
		b.until(`document.getElementById('told').textContent !== ''`)
		var told map[string]string
		if err := json.Unmarshal([]byte(evaluate[string](b, `document.getElementById('told').textContent`)), &told); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a window": "true", "the API": "refused", "a write": "refused", "a write with cookies": "0",
			"the console": "refused", "the console in a frame": "refused", "the console in a window": "refused",
			"the window that opened it": "refused", "a cookie": "refused", "the clipboard": "refused",
			"a script that stays": "refused", "the camera": "refused"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("what the page could do (-want +got):\n%s", diff)
		}
		if all := fetch(t, s.url+"/v1/containers"); strings.Contains(all, "stolen") {
			t.Errorf("the page made a container: %s", all)
		}
	})
	t.Run("Screen", func(t *testing.T) {
		b.t = t
		for _, name := range []string{"clipboard-read", "clipboard-write"} {
			if _, err := chromedp.CallBrowser(b.ctx, permission.SetPermission, permission.SetPermissionParams{
				Permission: &permission.PermissionDescriptor{Name: name},
				Setting:    permission.PermissionSettingGranted,
			}); err != nil {
				t.Fatal(err)
			}
		}
		// The page before has opened a window, which has the focus.
		if _, err := chromedp.Call(b.ctx, emulation.SetFocusEmulationEnabled,
			emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
			t.Fatal(err)
		}
		b.open(s.url + "/console/")
		clipboard(b, "writeText('of the viewer')")
		for _, lie := range hostile {
			before := s.peak()
			b.open(page + lie + "/")
			s.waitUntil(lie+" has come to an end", func() bool {
				how, _ := s.ended(id, lie)
				return how != ""
			})
			if title := evaluate[string](b, "document.title"); title != "Desktop" {
				t.Errorf("%s: the page is called %q", lie, title)
			}
			if n := evaluate[int](b, "document.querySelectorAll('img, script:not([type=module])').length"); n > 0 {
				t.Errorf("%s: %d elements are in the page that the screen named", lie, n)
			}
			b.open(s.url + "/console/") // the browser still shows pages
			b.until(`document.title.includes('Berth')`)
			if text := clipboard(b, "readText()"); text != "of the viewer" {
				t.Errorf("%s: the viewer's clipboard has %q", lie, text)
			}
			if grown := s.peak() - before; grown > 64<<20 {
				t.Errorf("%s: the server grew by %d MiB", lie, grown>>20)
			}
		}
	})
}

// clipboard uses the clipboard of a browser, and returns what the call resolves to.
func clipboard(b *browser, call string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("navigator.clipboard."+call+".then((text) => text ?? '')",
		chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// dialScreen opens a session with a screen, and reads nothing of what it shows.
func dialScreen(t *testing.T, page string) net.Conn {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(page, "http")+"websockify", nil)
	if err != nil {
		t.Fatal(err)
	}
	conn := websocket.NetConn(t.Context(), ws, websocket.MessageBinary)
	t.Cleanup(func() { conn.Close() })
	for _, answer := range []string{"RFB 003.008\n", "\x01", "\x01"} {
		if _, err := io.WriteString(conn, answer); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// ended returns how a screen of testdata/hostile_screen.py ended, and how much it had sent by then.
func (s *server) ended(container, lie string) (how string, sent int) {
	s.t.Helper()
	for line := range strings.Lines(s.in(container, "cat ends 2>/dev/null; true")) {
		if _, err := fmt.Sscanf(line, lie+" %s %d", &how, &sent); err == nil {
			return how, sent
		}
	}
	return "", 0
}
