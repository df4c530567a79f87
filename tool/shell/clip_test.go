package shell

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth/guest"
)

// clipped runs pieces of output through a clip and returns what passes immediately, and all.
func clipped(limit int, pieces ...string) (now, all [2]string) {
	c := newClip(limit)
	for i, p := range pieces {
		now[i%2] += c.write(i%2, []byte(p))
	}
	rest := c.finish([2]guest.OutputFile{})
	return now, [2]string{now[0] + rest[0], now[1] + rest[1]}
}

func TestClip(t *testing.T) {
	if _, all := clipped(10, "0123456789"); all[stdout] != "0123456789" {
		t.Errorf("output of exactly the limit: got %q", all[stdout])
	}
	now, all := clipped(10, "0123456789ABCDE")
	if now[stdout] != "01234" {
		t.Errorf("at once: got %q, want the first half of the limit", now[stdout])
	}
	if want := "01234\n[… 5 characters left out …]\nABCDE"; all[stdout] != want {
		t.Errorf("got %q, want %q", all[stdout], want)
	}
	_, all = clipped(4, "aaaa", "bbbb", "cccc")
	if all[stdout] != "aa\n[… 4 characters left out …]\ncc" || all[stderr] != "\n[… 4 characters left out …]\n" {
		t.Errorf("two streams share the limit: got %q and %q", all[stdout], all[stderr])
	}
	if _, all = clipped(0, "abc"); all[stdout] != "\n[… 3 characters left out …]\n" {
		t.Errorf("limit 0: got %q", all[stdout])
	}
}

func TestClipSaysWhereTheRestIs(t *testing.T) {
	for _, test := range []struct {
		file guest.OutputFile
		want string
	}{
		{guest.OutputFile{Path: "/out/1", Bytes: 6}, "a\n[… 4 characters left out; all of it is in /out/1 …]\nf"},
		{guest.OutputFile{Path: "/out/1", Bytes: 5},
			"a\n[… 4 characters left out; the first 5 bytes are in /out/1 …]\nf"},
	} {
		c := newClip(2)
		got := c.write(stdout, []byte("abcdef"))
		got += c.finish([2]guest.OutputFile{test.file, {Path: "/out/2"}})[stdout]
		if got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	c := newClip(2)
	c.write(stdout, []byte("ab"))
	if rest := c.finish([2]guest.OutputFile{{Path: "/out/1", Bytes: 2}}); rest[stdout] != "b" {
		t.Errorf("nothing was left out: got %q", rest[stdout])
	}
}

func TestClipRunes(t *testing.T) {
	text := "grüße 😀 \xff\xfe end \xf0\x9f"
	want := string([]rune(text)) // each bad byte is one U+FFFD
	c := newClip(1000)
	var got string
	for i := range len(text) {
		got += c.write(stdout, []byte{text[i]})
	}
	got += c.finish([2]guest.OutputFile{})[stdout]
	if got != want {
		t.Errorf("byte by byte: got %q, want %q", got, want)
	}
}

func FuzzClip(f *testing.F) {
	f.Add([]byte("hello wörld"), 5, 3)
	f.Fuzz(func(t *testing.T, data []byte, limit, step int) {
		if limit < 0 || limit > 1000 || step < 1 {
			return
		}
		c, text := newClip(limit), ""
		for i := 0; i < len(data); i += step {
			text += c.write(stdout, data[i:min(i+step, len(data))])
		}
		text += c.finish([2]guest.OutputFile{})[stdout]
		if !utf8.ValidString(text) {
			t.Errorf("%q is not UTF-8", text)
		}
		whole := string([]rune(string(data)))
		if utf8.RuneCountInString(whole) <= limit && text != whole {
			t.Errorf("got %q, want %q", text, whole)
		}
		if n := utf8.RuneCountInString(text); n > limit+60 {
			t.Errorf("%d characters for a limit of %d", n, limit)
		}
	})
}

// A limit below 0 is 0.
func TestClipNegative(t *testing.T) {
	c := newClip(-1)
	if got := c.write(stdout, []byte("hello")); got != "" {
		t.Errorf("wrote %q", got)
	}
	if out := c.finish([2]guest.OutputFile{}); !strings.Contains(out[stdout], "5 characters left out") {
		t.Errorf("got %q", out)
	}
	if s := New(nil, nil, Limits{Output: -1, Timeout: -time.Second}); s.limits.Output != 32<<10 ||
		s.limits.Timeout != 10*time.Minute {
		t.Errorf("got %+v", s.limits)
	}
}
