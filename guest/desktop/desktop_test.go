package desktop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image/png"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// numbers gives each test a display of its own, above those that machines use.
var numbers atomic.Int32

func number() int { return 4000 + int(numbers.Add(1)) }

func never() error { return nil }

// pretend serves a display with answer, which gets each connection.
func pretend(t *testing.T, answer func(net.Conn)) int {
	t.Helper()
	n := number()
	l, err := net.Listen("unix", fmt.Sprintf("@/tmp/.X11-unix/X%d", n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.ReadFull(c, make([]byte, 12)); err == nil { // the client's greeting
					answer(c)
				}
			}()
		}
	}()
	return n
}

// welcome returns a server's description of a screen.
func welcome(width, height, depth int) []byte {
	body := make([]byte, 32+8+40)
	binary.LittleEndian.PutUint32(body[4:], 0x200000)
	body[20], body[21], body[26], body[27] = 1, 1, 8, 255
	s := body[40:]
	binary.LittleEndian.PutUint16(s[20:], uint16(width))
	binary.LittleEndian.PutUint16(s[22:], uint16(height))
	s[38] = byte(depth)
	head := []byte{1, 0, 11, 0, 0, 0, 0, 0}
	binary.LittleEndian.PutUint16(head[6:], uint16(len(body)/4))
	return append(head, body...)
}

// A process of the sandbox may pretend to be the X server. Whatever it sends, the guest neither
// fails nor allocates without limit.
func TestHostileServer(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(net.Conn)
		want   string
	}{
		"closes":  {func(net.Conn) {}, "connect to display"},
		"noise":   {func(c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte{0xff}, 1<<20)) }, "refused"},
		"refuses": {func(c net.Conn) { _, _ = c.Write([]byte{0, 0, 11, 0, 0, 0, 0, 0}) }, "refused"},
		"too short": {func(c net.Conn) {
			_, _ = c.Write([]byte{1, 0, 11, 0, 0, 0, 1, 0, 0, 0, 0, 0})
		}, "invalid description"},
		"huge":       {func(c net.Conn) { _, _ = c.Write(welcome(65535, 65535, 24)) }, "4096 × 4096 are allowed"},
		"empty":      {func(c net.Conn) { _, _ = c.Write(welcome(0, 768, 24)) }, "are allowed"},
		"monochrome": {func(c net.Conn) { _, _ = c.Write(welcome(1024, 768, 1)) }, "24 are needed"},
		"long answer": {func(c net.Conn) {
			_, _ = c.Write(welcome(1024, 768, 24))
			_, _ = c.Write(append([]byte{1, 0, 1, 0, 0xff, 0xff, 0xff, 0xff}, make([]byte, 24)...))
			_, _ = io.Copy(io.Discard, c)
		}, "sent an answer of"},
		"answer above its limit": {func(c net.Conn) {
			_, _ = c.Write(welcome(1024, 768, 24))
			_, _ = c.Write(append([]byte{1, 0, 1, 0, 0, 1, 0, 0}, make([]byte, 24+1024)...))
			_, _ = io.Copy(io.Discard, c)
		}, "0 are allowed"},
		"an extension is missing": {func(c net.Conn) {
			_, _ = c.Write(welcome(1024, 768, 24))
			_, _ = c.Write(append([]byte{1, 0, 1, 0, 0, 0, 0, 0}, make([]byte, 24)...))
			_, _ = io.Copy(io.Discard, c)
		}, "lacks the extension XTEST"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Connect(pretend(t, tc.answer))
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	if _, err := Connect(number()); err == nil {
		t.Error("connected to a display that does not exist")
	}
}

// The encoded image has the pixels of the screen.
func TestEncode(t *testing.T) {
	const w, h = 67, 41
	pixels := make([]byte, 4*w*h)
	for i := range pixels {
		pixels[i] = byte(i * i / 7)
	}
	out, err := encode(pixels, w, h)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	for y := range h {
		for x := range w {
			r, g, b, _ := img.At(x, y).RGBA()
			p := pixels[4*(y*w+x):]
			if byte(r>>8) != p[2] || byte(g>>8) != p[1] || byte(b>>8) != p[0] {
				t.Fatalf("pixel (%d, %d) is %d %d %d, want %d %d %d", x, y, r>>8, g>>8, b>>8, p[2], p[1], p[0])
			}
		}
	}
}

// A screen of noise is too large as PNG, and becomes a JPEG within the limit.
func TestEncodeNoise(t *testing.T) {
	const w, h = 1280, 1024
	pixels := make([]byte, 4*w*h)
	state := uint32(1)
	for i := range pixels {
		state = state*1664525 + 1013904223
		pixels[i] = byte(state >> 24)
	}
	out, err := encode(pixels, w, h)
	if err != nil || len(out) > MaxImage || !bytes.HasPrefix(out, []byte{0xff, 0xd8}) {
		t.Errorf("got %d bytes that start with %x, error %v", len(out), out[:min(2, len(out))], err)
	}
}

func TestKeyNames(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  []keysym
	}{
		{[]string{"CTRL", "C"}, []keysym{0xffe3, 'c'}},
		{[]string{"ctrl+shift+T"}, []keysym{0xffe3, 0xffe1, 't'}},
		{[]string{"ENTER"}, []keysym{0xff0d}},
		{[]string{"Page_Down"}, []keysym{0xff56}},
		{[]string{"ArrowLeft", "F12", "+", "é"}, []keysym{0xff51, 0xffc9, '+', 0xe9}},
		{[]string{"€"}, []keysym{0x010020ac}},
	} {
		got, err := keysOf(tc.names)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%q: got %x, %v, want %x", tc.names, got, err, tc.want)
		}
	}
	for _, bad := range [][]string{{""}, {"hyper"}, {"ctrl+"}, {"\xff"}, strings.Split(strings.Repeat("a ", 20), " ")} {
		if got, err := keysOf(bad); err == nil {
			t.Errorf("%q: got %x, want an error", bad, got)
		}
	}
}

// start starts a real X server, and returns a connection to it.
func start(t *testing.T, size string) *Screen {
	t.Helper()
	path, err := exec.LookPath("Xvfb")
	if err != nil {
		t.Skip("skipped: Xvfb is not installed (apt-get install xvfb)")
	}
	n := number()
	cmd := exec.Command(path, fmt.Sprintf(":%d", n), "-screen", "0", size, "-ac", "-nolisten", "tcp", "-noreset")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s, err := Connect(n)
		if err == nil {
			t.Cleanup(s.Close)
			return s
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// Actions move the real pointer, and are refused if they do not fit the display.
func TestActions(t *testing.T) {
	s := start(t, "320x240x24")
	if w, h := s.Size(); w != 320 || h != 240 || !s.Alive() {
		t.Fatalf("the display has %d × %d pixels", w, h)
	}
	err := s.Act([]Action{{Type: "move", X: 11, Y: 22}, {Type: "scroll", X: 30, Y: 40, ScrollY: 500, ScrollX: -10},
		{Type: "double_click", X: 5, Y: 5},
		{Type: "keypress", Keys: []string{"CTRL", "A"}}, {Type: "type", Text: "Hello, wörld! €🙂\n"}, {Type: "wait"},
		{Type: "drag", Path: []Point{{1, 1}, {50, 60}}}, {Type: "click", X: 319, Y: 239, Button: "right",
			Keys: []string{"SHIFT"}}}, never)
	if err != nil {
		t.Fatal(err)
	}
	const opQueryPointer = 38
	reply, err := s.display.ask(request(opQueryPointer, 0, u32(s.display.root)), 0)
	if err != nil {
		t.Fatal(err)
	}
	if x, y := order.Uint16(reply[16:]), order.Uint16(reply[18:]); x != 319 || y != 239 {
		t.Errorf("the pointer is at (%d, %d), want (319, 239)", x, y)
	}
	shot, err := s.Screenshot()
	if err != nil {
		t.Fatal(err)
	}
	if img, err := png.Decode(bytes.NewReader(shot)); err != nil || img.Bounds().Dx() != 320 ||
		img.Bounds().Dy() != 240 {
		t.Errorf("the screenshot is %v, %v", img, err)
	}
	many := make([]Action, maxActions+1)
	for name, bad := range map[string][]Action{
		"is not on the display of 320 × 240": {{Type: "screenshot"}, {Type: "click", X: 320, Y: 0}},
		"place (-1, 0)":                      {{Type: "move", X: -1}},
		"place (5, 240)":                     {{Type: "drag", Path: []Point{{0, 0}, {5, 240}}}},
		"100 are allowed":                    many,
		"10000 are allowed in one action":    {{Type: "type", Text: strings.Repeat("x", maxText+1)}},
		"no action of type":                  {{Type: "hover"}},
		"no button":                          {{Type: "click", Button: "middle"}},
		"no key":                             {{Type: "keypress", Keys: []string{"HYPER"}}},
		"has no keys":                        {{Type: "keypress"}},
		"not valid UTF-8":                    {{Type: "type", Text: "\xff"}},
	} {
		if err := s.Act(bad, never); !Refused(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want a refusal with %q", err, name)
		}
	}
}

// Programs have time to handle an action before the next one.
func TestPace(t *testing.T) {
	s := start(t, "320x240x24")
	began := time.Now()
	if err := s.Act([]Action{{Type: "click", X: 1, Y: 1}, {Type: "screenshot"}, {Type: "click", X: 5, Y: 5},
		{Type: "move", X: 9, Y: 9}}, never); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*between {
		t.Errorf("three actions took %v, want %v between two", took, between)
	}
}

// Two texts with more characters than the keyboard has free keys are typed without an error, and
// the last character's symbol is on the keyboard.
func TestTypeManySymbols(t *testing.T) {
	s := start(t, "320x240x24")
	var text strings.Builder
	for i := range 400 {
		text.WriteRune(rune(0x4e00 + i))
	}
	if err := s.Act([]Action{{Type: "type", Text: text.String()}}, never); err != nil {
		t.Fatal(err)
	}
	fresh := &display{conn: s.display.conn, in: s.display.in, seq: s.display.seq, minKey: s.display.minKey,
		maxKey: s.display.maxKey}
	k, err := fresh.keyboard()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := k.at[symbolOf(rune(0x4e00+399))]; !ok {
		t.Error("the last character is on no key")
	}
}

// A call that is to end stops between its actions.
func TestStopped(t *testing.T) {
	s := start(t, "320x240x24")
	stop := fmt.Errorf("stop")
	if err := s.Act([]Action{{Type: "wait"}, {Type: "wait"}}, func() error {
		return stop
	}); err == nil || Refused(err) {
		t.Errorf("got %v", err)
	}
}
