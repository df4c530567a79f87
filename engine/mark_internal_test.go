package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/tool"
)

var marked = map[string]tool.Citable{}

func init() {
	for _, key := range []string{"a:0", "a:1"} {
		marked[key] = tool.Citable{Mark: tool.MarkStart + key + "†notes.md" + tool.MarkEnd,
			Annotation: func(int, int) json.RawMessage {
				return json.RawMessage(`"` + key + `"`)
			}}
	}
}

// readMarks feeds text in pieces of n characters and returns what remains, with <key> for each
// citation.
func readMarks(text string, n int) string {
	r := markReader{citables: marked}
	var out strings.Builder
	for left := []rune(text); len(left) > 0; {
		size := min(n, len(left))
		for _, p := range r.write(string(left[:size])) {
			out.WriteString(p.text)
			if p.citable != nil {
				out.WriteString("<" + markKey(p.citable.Mark) + ">")
			}
		}
		left = left[size:]
	}
	return out.String() + r.rest()
}

func TestMarks(t *testing.T) {
	t.Parallel()
	long := "【" + strings.Repeat("x", maxMark+10)
	for text, want := range map[string]string{
		"":                             "",
		"plain":                        "plain",
		"one 【a:0†notes.md】. two":      "one <a:0>. two",
		"【a:0】【 a:1 †another name】":    "<a:0><a:1>",
		"unknown 【b:0†notes.md】":       "unknown 【b:0†notes.md】",
		"not closed 【a:0†notes":        "not closed 【a:0†notes",
		"【【a:0†notes.md】】":             "【<a:0>】",
		"】 alone":                      "】 alone",
		long + " 【a:1†notes.md】 after": long + " <a:1> after",
	} {
		for _, n := range []int{1, 2, 5, 1000} {
			if diff := cmp.Diff(want, readMarks(text, n)); diff != "" {
				t.Errorf("%q in pieces of %d (-want +got):\n%s", text, n, diff)
			}
		}
	}
}

// Without marks, no byte is lost or moved, however the text is cut.
func FuzzMarks(f *testing.F) {
	f.Add("a 【a:0†notes.md】 b", 2)
	f.Add("【【】【a:1", 1)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if n < 1 || len(text) > 4096 || !utf8.ValidString(text) {
			return
		}
		got := readMarks(text, n)
		if want := readMarks(text, len(text)+1); got != want {
			t.Errorf("in pieces of %d: got %q, want %q", n, got, want)
		}
		if !strings.Contains(text, "a:") && got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	})
}

// The text of a citable replaces its mark, and its annotation has the place of that text.
func TestMarkWithText(t *testing.T) {
	t.Parallel()
	link := tool.Citable{Mark: "【w:0】", Text: "(link)", Annotation: func(start, end int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf("[%d,%d]", start, end))
	}}
	m := &openMessage{marks: markReader{citables: map[string]tool.Citable{"w:0": link}}}
	var got []string
	for _, ev := range m.writeMarked("Grüße 【w:0】. 【w:0】", nil) {
		text, _ := ev.DeltaText()
		got = append(got, text+string(ev.Annotation))
	}
	if diff := cmp.Diff([]string{"Grüße ", "(link)", "[6,12]", ". ", "(link)", "[14,20]"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
