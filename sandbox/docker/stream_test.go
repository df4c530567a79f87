package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// frame returns an engine's frame of an output.
func frame(output byte, content string) string {
	h := make([]byte, 8)
	h[0] = output
	binary.BigEndian.PutUint32(h[4:], uint32(len(content)))
	return string(h) + content
}

// fromEngine returns a stream that reads text and then ends.
func fromEngine(text string) *stream {
	return &stream{in: bufio.NewReader(iotest.OneByteReader(strings.NewReader(text)))}
}

func TestStream(t *testing.T) {
	s := fromEngine(frame(1, "ok\nhe") + frame(2, "a word") + frame(1, "") + frame(1, "llo"))
	if err := s.greeting(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(s)
	if string(got) != "hello" || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, "hello")
	}
	if got := string(s.complaint); got != "a word" {
		t.Errorf("complaint: got %q", got)
	}
}

func TestStreamRefusals(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"Nothing":      {"", "EOF"},
		"Complaint":    {frame(2, "no socket\n"), `the relay in the sandbox: "no socket"`},
		"Lies":         {frame(1, "ko\n"), `the relay sent "ko\n"`},
		"HalfAHeader":  {"\x01\x00", "unexpected EOF"},
		"OtherOutput":  {frame(3, "ok\n"), "the engine sent output 3"},
		"LongerFrame":  {frame(1, "ok\n")[:9], "unexpected EOF"},
		"TooMuchNoise": {frame(2, strings.Repeat("x", 1<<20)), `the relay in the sandbox: "xxx`},
	} {
		s := fromEngine(tt.in)
		err := s.greeting()
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %.100v, want %s", name, err, tt.want)
		}
		if len(s.complaint) > maxComplaint {
			t.Errorf("%s: %d bytes of complaint are recorded", name, len(s.complaint))
		}
	}
}

// A deadline in the middle of a frame loses no data.
func TestStreamDeadline(t *testing.T) {
	ours, engine := net.Pipe()
	defer engine.Close()
	s := &stream{Conn: ours, in: bufio.NewReader(ours)}
	defer s.Close()
	text := frame(1, "hello")
	go io.WriteString(engine, text[:3])
	buf := make([]byte, 16)
	// This reads until the three bytes were read, and once more without data.
	for s.have < 3 {
		ours.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := s.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("got %v, want %v", err, os.ErrDeadlineExceeded)
		}
	}
	ours.SetReadDeadline(time.Time{})
	go io.WriteString(engine, text[3:])
	n, err := io.ReadFull(s, buf[:5])
	if got := string(buf[:n]); got != "hello" || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, "hello")
	}
}

// FuzzStream reads invalid streams.
func FuzzStream(f *testing.F) {
	f.Add(frame(1, "ok\n") + frame(2, "x"))
	f.Add("\x01\x00\x00\x00\xff\xff\xff\xffx")
	f.Fuzz(func(t *testing.T, text string) {
		s := fromEngine(text)
		got, err := io.ReadAll(s)
		if len(got) > len(text) || len(s.complaint) > maxComplaint || s.left < 0 {
			t.Errorf("got %d bytes, %v, of %d; complaint %d", len(got), err, len(text), len(s.complaint))
		}
	})
}
