package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestWriterGolden(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	w.Event(Event{Type: "response.created", Data: []byte(`{"a":1}`)})
	w.Comment("keep-alive")
	w.Event(Event{Data: []byte("one\ntwo\r\nthree\rfour")})
	w.Event(Event{Type: "empty"})
	want := "event: response.created\ndata: {\"a\":1}\n\n" +
		": keep-alive\n\n" +
		"data: one\ndata: two\ndata: three\ndata: four\n\n" +
		"event: empty\ndata: \n\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
}

func TestLargeEventIsNotCopied(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 8<<20)
	var out bytes.Buffer
	out.Grow(len(data) + 100)
	w := NewWriter(&out)
	if n := testing.AllocsPerRun(1, func() {
		out.Reset()
		w.EventOf("a", data, []byte("y"))
	}); n > 5 || cap(w.buf) > 1<<10 {
		t.Errorf("got %v allocations and a buffer of %d bytes", n, cap(w.buf))
	}
	if want := "event: a\ndata: " + string(data) + "y\n\n"; out.String() != want {
		t.Errorf("got %d bytes, want %d", out.Len(), len(want))
	}
}

// countingWriter counts writes.
type countingWriter struct{ writes int }

func (w *countingWriter) Write(p []byte) (int, error) { w.writes++; return len(p), nil }

func TestSmallEventIsOneWrite(t *testing.T) {
	var out countingWriter
	NewWriter(&out).Event(Event{Type: "x", Data: []byte("a\nb\nc")})
	if out.writes != 1 {
		t.Errorf("got %d writes for one event, want 1", out.writes)
	}
}

func TestReader(t *testing.T) {
	tests := []struct {
		name, in string
		want     []Event
		err      error
	}{
		{name: "empty"},
		{name: "typed", in: "event: a\ndata: 1\n\n", want: []Event{{"a", []byte("1")}}},
		{name: "untyped, no space", in: "data:1\n\n", want: []Event{{"", []byte("1")}}},
		{name: "one space only is dropped", in: "data:  1\n\n", want: []Event{{"", []byte(" 1")}}},
		{name: "several lines", in: "data: 1\ndata: 2\n\n", want: []Event{{"", []byte("1\n2")}}},
		{name: "crlf", in: "event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n",
			want: []Event{{"a", []byte("1")}, {"", []byte("2")}}},
		{name: "cr", in: "data: 1\r\rdata: 2\r\r", want: []Event{{"", []byte("1")}, {"", []byte("2")}}},
		{name: "comments, id and retry", in: ": hi\n\nid: 4\nretry: 9\ndata: 1\n: in between\n\n",
			want: []Event{{"", []byte("1")}}},
		{name: "no data is no event", in: "event: a\n\ndata: 1\n\n", want: []Event{{"", []byte("1")}}},
		{name: "empty data is an event", in: "data\n\n", want: []Event{{"", []byte{}}}},
		{name: "byte order mark", in: "\ufeffdata: 1\n\n", want: []Event{{"", []byte("1")}}},
		{name: "cut in an event", in: "data: 1\n\ndata: 2\n", want: []Event{{"", []byte("1")}},
			err: io.ErrUnexpectedEOF},
		{name: "cut in a line", in: "data: 1", err: io.ErrUnexpectedEOF},
		{name: "too long", in: "data: " + strings.Repeat("x", 100) + "\n\n", err: ErrTooLong},
		{name: "too long in lines", in: strings.Repeat("data: x\n", 20) + "\n", err: ErrTooLong},
		{name: "comments do not count to the limit", in: strings.Repeat(": keep-alive\n\n", 20) + "data: 1\n\n",
			want: []Event{{"", []byte("1")}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			readers := map[string]io.Reader{
				"at once": strings.NewReader(tt.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
			}
			for how, in := range readers {
				var got []Event
				var err error
				for ev, e := range NewReader(in, 64).Events() {
					if err = e; e == nil {
						got = append(got, ev)
					}
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: events (-want +got):\n%s", how, diff)
				}
				if !errors.Is(err, tt.err) {
					t.Errorf("%s: got error %v, want %v", how, err, tt.err)
				}
			}
		})
	}
}

// Next returns an event before more of the stream arrives.
func TestReaderDoesNotWaitForTheNextEvent(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	go out.Write([]byte("data: 1\r\n\r\n"))
	ev, err := NewReader(in, 0).Next()
	if err != nil || string(ev.Data) != "1" {
		t.Errorf("got %q, %v, want 1, nil", ev.Data, err)
	}
}

// A Reader reads what a Writer writes, and fails only with known errors on any input.
func FuzzRoundTrip(f *testing.F) {
	f.Add("response.created", []byte(`{"a":1}`))
	f.Add("", []byte("a\r\n\r\nb\rc\n"))
	f.Add("data: x", []byte(": y"))
	f.Fuzz(func(t *testing.T, typ string, data []byte) {
		const limit = 256
		for _, err := range NewReader(bytes.NewReader(data), limit).Events() {
			if err != nil && err != ErrTooLong && err != io.ErrUnexpectedEOF {
				t.Fatalf("reading %q: %v", data, err)
			}
		}
		if strings.ContainsAny(typ, "\r\n") {
			return
		}
		var stream bytes.Buffer
		w := NewWriter(&stream)
		w.Comment(typ)
		w.Event(Event{typ, data})
		w.Event(Event{"end", nil})
		r := NewReader(&stream, 0)
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
		data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
		if got.Type != typ || !bytes.Equal(got.Data, data) {
			t.Fatalf("got %q %q, want %q %q", got.Type, got.Data, typ, data)
		}
		if end, err := r.Next(); err != nil || end.Type != "end" {
			t.Fatalf("got %q, %v after the event, want end, nil", end.Type, err)
		}
	})
}
