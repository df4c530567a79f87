package jupyter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	frames, err := encode("key", "s", "id", "execute_request", map[string]any{"code": "1"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode("key", append([][]byte{[]byte("topic")}, frames...), nil)
	if err != nil || got.Type != "execute_request" || string(got.Content) != `{"code":"1"}` {
		t.Errorf("decoded %+v, %v", got, err)
	}
	if _, err := decode("other", frames, nil); err == nil {
		t.Error("a message with another key was accepted")
	}
	if _, err := decode("key", frames[:4], nil); err == nil {
		t.Error("a message without content was accepted")
	}
	frames[len(frames)-1] = nil // as receive returns a frame that is too long
	if got, err := decode("key", frames, nil); err != nil || got.Content != nil {
		t.Errorf("a message whose content was dropped: %+v, %v", got, err)
	}
	if got := Events(Message{Type: "stream"}); len(got) != 1 || got[0].Type != Notice {
		t.Errorf("its events: %+v", got)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, content, want string }{
		{"stream", `{"name":"stdout","text":"a\n"}`, `[{"type":"stream","text":"a\n"}]`},
		{"status", `{"execution_state":"busy"}`, `null`},
		{"error", `{"ename":"E","evalue":"v","traceback":["\u001b[31mline\u001b[0m","E: v"]}`,
			`[{"type":"error","text":"line\nE: v","name":"E","value":"v"}]`},
		{"error", `{"ename":"E","evalue":"v"}`, `[{"type":"error","text":"E: v","name":"E","value":"v"}]`},
		{"execute_result", `{"data":{"text/plain":"1","application/x-unknown":{}}}`,
			`[{"type":"result","data":{"text/plain":"1"}}]`},
		{"display_data", `{"data":{"application/json":{"a":[1]}}}`,
			`[{"type":"display","data":{"application/json":{"a":[1]}}}]`},
		{"display_data", `{"data":{"text/html":"` + strings.Repeat("x", maxData) + `"}}`,
			`[{"type":"notice","text":"A result of type text/html above the size limit was left out."}]`},
		{"display_data", `{"data":7}`, `null`},
	} {
		got, _ := json.Marshal(Events(Message{Type: c.kind, Content: json.RawMessage(c.content)}))
		if string(got) != c.want {
			t.Errorf("%s %.80s: %s, want %s", c.kind, c.content, got, c.want)
		}
	}
}

func TestDecoder(t *testing.T) {
	t.Parallel()
	var d Decoder
	var got []Event
	for _, piece := range []string{`{"type":"str`, `eam","text":"a"}` + "\n{bad}\n", `{"type":"notice","text":"b"}` +
		"\n"} {
		got = append(got, d.Write([]byte(piece), 0)...)
	}
	got = append(got, d.Write([]byte(`ed"}`+"\n"+`{"type":"stream","text":"c"}`+"\n"), 1000)...)
	want := []Event{{Type: Stream, Text: "a"}, {Type: Notice, Text: "b"}, {Type: Stream, Text: "c"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	crowd := `{"type":"display","data":{"a":"b"` + strings.Repeat(`,"a":"b"`, 100_000) + "}}\n"
	if got := d.Write([]byte(crowd), 0); len(got) > 0 {
		t.Errorf("an event of 100,000 media types was decoded to %d", len(got[0].Data))
	}
	for range 3 { // a line without an end does not use up the memory
		d.Write(bytes.Repeat([]byte("x"), maxLine/2), 0)
	}
	if len(d.line) > 0 {
		t.Errorf("%d bytes of a line are held", len(d.line))
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Find([]string{dir}, "python3"); err == nil || !strings.Contains(err.Error(),
		"no Jupyter kernel is installed") {
		t.Errorf("without kernels: %v", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "kernel.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("python3", `{"argv":["python3","-m","ipykernel_launcher","-f","{connection_file}"],"language":"python"}`)
	write("broken", `{"argv":[]}`)
	spec, err := Find([]string{dir}, "python3")
	if err != nil || cmp.Diff([]string{"python3", "-m", "ipykernel_launcher", "-f", "/x"}, spec.Command("/x")) != "" {
		t.Errorf("found %+v, %v", spec, err)
	}
	if _, err := Find([]string{dir}, "ir"); err == nil || !strings.HasSuffix(err.Error(), "there are: python3") {
		t.Errorf("another kernel: %v", err)
	}
}

// Of a text that is too long for a message, the start is kept, up to a whole character.
func TestLongStream(t *testing.T) {
	t.Parallel()
	frames, err := encode("k", "s", "i", "stream", map[string]any{"name": "stdout", "text": strings.Repeat("é\n",
		maxFrame/3)})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() { _ = (&socket{conn: theirs}).send(frames) }()
	got, start, err := (&socket{conn: ours}).receive()
	if err != nil {
		t.Fatal(err)
	}
	m, err := decode("k", got, start)
	if err != nil {
		t.Fatal(err)
	}
	events := Events(m)
	if len(events) != 2 || events[0].Type != Stream || events[1].Type != Notice {
		t.Fatalf("got %d events", len(events))
	}
	text := events[0].Text
	if len(text) < maxStart*2/3 || strings.TrimSuffix(strings.ReplaceAll(text, "é\n", ""), "é") != "" {
		t.Errorf("got %d bytes, the end is %q", len(text), text[max(0, len(text)-20):])
	}
}

func TestStartOfText(t *testing.T) {
	t.Parallel()
	for start, want := range map[string]string{
		`{"name":"stdout","text":"ab`: "ab", `{"text": "a\`: "a", `{"text": "a\u00e`: "a", `{"text": "a\u00e9`: "aé",
		"{\"text\": \"a\xc3":      "a",
		`{"text": "a\"b", "x": "`: `a"b`, `{"other":"\"text\":`: "", `{"text": 7`: "", ``: "", `{"text": "a\qb`: "",
	} {
		if got := startOfText([]byte(start)); got != want {
			t.Errorf("%q: got %q, want %q", start, got, want)
		}
	}
}

// TestHostileSocket sends to the client what no kernel sends.
func TestHostileSocket(t *testing.T) {
	t.Parallel()
	greeting := append(append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0}, "NULL"...), make([]byte, 48)...)
	ready := append([]byte{flagCommand, 6}, "\x05READY"...)
	long := binary.BigEndian.AppendUint64([]byte{flagLong}, maxFrame+1)
	for name, c := range map[string]struct {
		sent   []byte
		fails  bool
		frames int
	}{
		"another protocol": {[]byte(strings.Repeat("HTTP/1.1 200 OK\r\n", 8)), true, 0},
		"no ready":         {append(bytes.Clone(greeting), 0, 1, 'x'), true, 0},
		"an endless frame": {append(append(bytes.Clone(greeting), ready...), 0x02, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff, 0xff), true, 0},
		"a frame too long": {append(append(append(append(bytes.Clone(greeting), ready...), long...),
			make([]byte, maxFrame+1)...), 0, 1, 'x'), false, 1},
		"too many frames": {append(append(bytes.Clone(greeting), ready...), bytes.Repeat([]byte{flagMore, 0},
			maxFrames+1)...), true, 0},
		"the end of a file": {append(append(bytes.Clone(greeting), ready...), 0, 9, 'x'), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			defer ours.Close()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			go func() {
				_, _ = theirs.Write(c.sent)
				theirs.Close()
			}()
			s, err := newSocket(ours, "DEALER")
			var frames [][]byte
			if err == nil {
				frames, _, err = s.receive()
			}
			if (err != nil) != c.fails || len(frames) != c.frames {
				t.Errorf("%d frames, %v", len(frames), err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	frames, _ := encode("k", "s", "i", "stream", map[string]any{"text": "x"})
	f.Add(bytes.Join(frames, []byte{0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decode("k", bytes.Split(data, []byte{0}), nil)
		if err == nil {
			Events(m)
		}
		var d Decoder
		for _, ev := range d.Write(data, 0) {
			ev.Plain()
		}
	})
}
