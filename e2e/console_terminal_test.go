package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/coder/websocket"
	"github.com/creack/pty"
)

// types types into the last terminal of the page.
func (b *browser) types(text string) {
	b.t.Helper()
	b.run(chromedp.SendKeys(chromedp.CSS(".pane:last-of-type textarea"), text+kb.Enter))
}

// endsInput types Ctrl+D into the last terminal of the page.
func (b *browser) endsInput() {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](`document.querySelector(".pane:last-of-type textarea").focus()`))
	b.run(chromedp.KeyEvent("d", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
}

// screens waits until the rows of a terminal contain words.
func (b *browser) screens(selector, words string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((s) => { const buffer = s.terminal?.buffer.active; let text = "";
		for (let i = 0; buffer && i < buffer.length; i++) text += buffer.getLine(i).translateToString(true) + "\n"; return text.includes(%q); })`, selector, words))
}

// A local is a terminal of this machine in which berth runs.
type local struct {
	tty  *os.File
	mu   sync.Mutex
	seen strings.Builder
}

// attach runs berth attach in a terminal of its own.
func (s *server) attach(args ...string) *local {
	s.t.Helper()
	cmd := s.command(append([]string{"attach"}, args...)...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 100, Rows: 30})
	if err != nil {
		s.t.Fatal(err)
	}
	l := &local{tty: tty}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			l.mu.Lock()
			l.seen.Write(buf[:n])
			l.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	s.t.Cleanup(func() {
		tty.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return l
}

func (l *local) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.String()
}

// TestConsoleTerminals types into terminals in a browser, reloads the page, and joins one from the
// command line.
func TestConsoleTerminals(t *testing.T) {
	s := newServer(t)
	id := s.namedContainer("box")
	b := newBrowser(t, 1600)
	page := s.url + "/console/containers/" + id + "/terminals"
	b.open(page)
	b.shows("main", "No terminal is open")
	b.click(".actions button")
	b.until(`document.querySelectorAll(".pane").length === 1`)
	b.screens(".pane", "$")
	b.types("X=kept; echo $((6*7))")
	b.screens(".pane", "\n42\n")

	b.click(".actions button") // another one, beside it
	b.until(`document.querySelectorAll(".pane").length === 2`)
	b.screens(".pane:first-of-type", "\n42\n") // it shows what it showed before
	b.screens(".pane:last-of-type", "$")
	b.types("echo $((7*9))")
	b.screens(".pane:last-of-type", "\n63\n")
	if wide := evaluate[bool](b,
		`(() => { const [a, b] = [...document.querySelectorAll(".pane")].map((s) => s.getBoundingClientRect()); return a.top === b.top && a.left < b.left; })()`); !wide {
		t.Error("the terminals are not side by side")
	}
	b.click(`.pane:last-of-type .bar button`)
	b.until(`document.querySelectorAll(".pane").length === 1`)

	b.open(page) // a reload
	b.screens(".pane", "\n42\n")
	b.types("echo got-$X")
	b.screens(".pane", "\ngot-kept\n")
	b.types(`printf '\033[38;2;200;10;10mcoloured\033[0m\n'`)
	b.until(`[...document.querySelectorAll(".xterm-rows span")].some((e) => e.textContent === "coloured" && getComputedStyle(e).color !== getComputedStyle(document.body).color)`)

	// Focus leaves a terminal by keyboard.
	b.run(chromedp.Evaluate[chromedp.Void](
		`document.querySelector(".pane textarea").dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", shiftKey: true, bubbles: true}))`))
	b.until(`document.activeElement.matches(".pane .bar button")`)

	list, errs, err := s.berth("attach", id, "--list")
	if err != nil || !regexp.MustCompile(`^NUMBER +COMMAND\n\d+ +/bin/bash -l -i\n$`).MatchString(list) {
		t.Fatalf("%v: %q, %s", err, list, errs)
	}
	pid := strings.Fields(list)[2]
	l := s.attach("--join", pid, id)
	s.waitUntil("berth attach shows what the page shows", func() bool { return strings.Contains(l.text(), "got-kept") })
	if _, err := io.WriteString(l.tty, "echo from-$X-cli\r"); err != nil {
		t.Fatal(err)
	}
	b.screens(".pane", "\nfrom-kept-cli\n")
	b.types("echo from-$X-page")
	s.waitUntil("berth attach shows what the page has typed", func() bool {
		return strings.Contains(l.text(), "from-kept-page")
	})

	// The page joins a terminal that berth attach has opened.
	own := s.attach(id)
	s.waitUntil("berth attach has a prompt", func() bool { return strings.Contains(own.text(), "$") })
	if _, err := io.WriteString(own.tty, "echo opened-$((1+1))\r"); err != nil {
		t.Fatal(err)
	}
	s.waitUntil("it answers", func() bool { return strings.Contains(own.text(), "opened-2") })
	b.open(page)
	b.screens(".pane:last-of-type", "opened-2")
	if _, err := io.WriteString(own.tty, "exit\r"); err != nil {
		t.Fatal(err)
	}
	b.shows(".pane [role=status]", "ended: exit status 0")

	b.checkQuiet()
	b.run(chromedp.EmulateViewport(360, 800))
	b.open(page)
	b.screens(".pane", "got-kept")
	if width := evaluate[int](b, "document.documentElement.scrollWidth"); width > 360 {
		t.Errorf("the page is %d pixels wide in a window of 360", width)
	}
}

// TestConsoleTerminalAttacks shows a page what a hostile program writes to its terminal, and sends the
// terminal what no page sends.
func TestConsoleTerminalAttacks(t *testing.T) {
	s := newServer(t)
	id := s.namedContainer("box")
	page := s.url + "/console/containers/" + id + "/terminals"
	hostile := "\x1b]0;pwned-title\x07\x1b]2;pwned-title\x1b\\" + // a title
		"\x1b[21t\x1b[20t\x1b[14t\x1b[18t" + // and its report as input, and those of windows
		"\x1b]52;c;cHduZWQ=\x07\x1b]52;c;?\x07" + // the clipboard, written and read
		// links
		"\x1b]8;;javascript:window.pwned=1\x1b\\one\x1b]8;;\x1b\\ \x1b]8;;data:text/html,x\x1b\\two\x1b]8;;\x1b\\ \x1b]8;;https://berth.invalid/\"onmouseover=\"pwned\x1b\\three\x1b]8;;\x1b\\" +
		// settings, printing, files, fonts, the answer to an enquiry
		"\x1bP$q\"p\x1b\\\x1bP+q544e\x1b\\\x1b[5i\x1b]1337;File=inline=1:aGk=\x07\x1b]50;pwned\x07\x05" +
		"<img src=x onerror=\"window.pwned=1\">\r\n"
	cmd := s.command("exec", "-i", id, "--", "tee", "hostile")
	cmd.Stdin = strings.NewReader(hostile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := newBrowser(t, 1000)
	b.open(page)
	b.click(".actions button")
	b.screens(".pane", "$")
	for i := range 2 {
		b.types(fmt.Sprintf("cat hostile; echo rea''dy-%d; cat >got; echo sa''w-%[1]d", i))
		b.screens(".pane", "onerror")
		b.screens(".pane", fmt.Sprintf("ready-%d", i))
		b.types("") // ends the line of the terminal's answers
		b.endsInput()
		b.screens(".pane", fmt.Sprintf("saw-%d", i))
		b.open(page) // shows the same again
		b.screens(".pane", fmt.Sprintf("saw-%d", i))
	}
	checkQuietPage := func(where string) {
		if evaluate[bool](b, `window.pwned !== undefined || document.title.includes("pwned")`) {
			t.Errorf("%s: the program has changed the page", where)
		}
		if found := evaluate[string](b,
			`[...document.querySelectorAll("main img, main iframe, main a[href^=javascript], main a[href^=data]")].map((e) => e.outerHTML).join()`); found != "" {
			t.Errorf("%s: the page has %s", where, found)
		}
	}
	checkQuietPage("a terminal")
	if got := s.in(id, "cat got"); strings.Contains(got, "pwned") {
		t.Errorf("the terminal has typed what the program wrote: %q", got)
	}
	// A click on a link asks first, and only links to the web are links.
	links := evaluate[string](b, `(() => { const asked = []; window.confirm = (text) => { asked.push(text); return false; }; window.open = () => { asked.push("opened"); };
		const handler = document.querySelector(".pane").terminal.options.linkHandler;
		for (const to of ["javascript:window.pwned=1", "data:text/html,x", "file:///etc/passwd", "no link", "https://berth.invalid/"]) handler.activate(new MouseEvent("click"), to); return asked.join(); })()`)
	if !strings.Contains(links, "https://berth.invalid/") || strings.Contains(links, "javascript") ||
		strings.Contains(links, "opened") || strings.Contains(links, "file:") {
		t.Errorf("links: got %q", links)
	}
	checkQuietPage("links")
	b.checkQuiet()

	// Sockets.
	list, errs, err := s.berth("attach", id, "--list")
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	pid := strings.Fields(list)[2]
	socket := strings.Replace(page, "http://", "ws://", 1) + "/" + pid + "/socket"
	dial := func(origin string) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), socket, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
	}
	if _, resp, err := dial("https://evil.example"); err == nil || resp == nil || resp.StatusCode < 400 {
		t.Errorf("another origin: got %v, %v", resp, err)
	}
	for name, first := range map[string]any{"without a token": map[string]any{"cols": 80, "rows": 24},
		"with a wrong token": map[string]any{"form": strings.Repeat("0", 64)}, "binary": nil} {
		conn, _, err := dial(s.url)
		if err != nil {
			t.Fatal(err)
		}
		raw, kind := []byte("touch /mnt/data/pwned\r"), websocket.MessageBinary
		if first != nil {
			raw, _ = json.Marshal(first)
			kind = websocket.MessageText
		}
		if err := conn.Write(t.Context(), kind, raw); err != nil {
			t.Fatal(err)
		}
		_ = conn.Write(t.Context(), websocket.MessageBinary, []byte("touch /mnt/data/pwned\r"))
		if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%s: got %v", name, err)
		}
		conn.CloseNow()
	}
	s.in(id, "test ! -e pwned")

	// A page that does not read is dropped, so that the terminal continues for others.
	_, text := s.fetch(strings.Replace(page, s.url, "", 1))
	token := regexp.MustCompile(`data-form="([0-9a-f]{64})"`).FindStringSubmatch(text)
	if token == nil {
		t.Fatal("the page has no token")
	}
	first, _ := json.Marshal(map[string]any{"form": token[1], "cols": 80, "rows": 24})
	join := func() *websocket.Conn {
		conn, _, err := dial(s.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		conn.SetReadLimit(1 << 20)
		if err := conn.Write(t.Context(), websocket.MessageText, first); err != nil {
			t.Fatal(err)
		}
		return conn
	}

	// Keys typed after output do not wait for the page's acknowledgement of it.
	conn := join()
	for range 100 {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"read": 1000000}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Write(t.Context(), websocket.MessageBinary, []byte("touch typed-after\r")); err != nil {
		t.Fatal(err)
	}
	s.waitUntil("what was typed has run", func() bool {
		return s.in(id, "test ! -e /mnt/data/typed-after || echo yes") == "yes\n"
	})
	conn.CloseNow()

	conn = join()
	if err := conn.Write(t.Context(), websocket.MessageBinary,
		[]byte("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo do''ne\r")); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, _, err = conn.Read(t.Context()) // never says that it has drawn
	}
	if websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Errorf("a page that draws nothing: got %v", err)
	}
	b.open(page)
	b.screens(".pane", "\ndone\n")
}
