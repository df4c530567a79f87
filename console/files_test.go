package console

import (
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/guest"
)

// TestPathOf: a path is absolute and clean, whatever was asked for.
func TestPathOf(t *testing.T) {
	for asked, want := range map[string]string{"": "/mnt/data", "/": "/", "/etc": "/etc", "etc": "/etc",
		"/mnt/data/../../etc": "/etc", "../../..": "/", "/a/./b//c/": "/a/b/c",
		"/a\x00b": "error", "/a\nb": "error", "/\xff": "error", "/" + strings.Repeat("x", 5000): "error"} {
		got, err := pathOf(asked, "/mnt/data")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", asked, got, want)
		}
	}
}

// TestFill: content is shown as what it is, whatever its name says.
func TestFill(t *testing.T) {
	long := strings.Repeat("é", maxPreview)
	for _, test := range []struct {
		path, content string
		kind          previewKind
		text          string
		rows          [][]string
		cut           bool
	}{
		{"/a.txt", "hello", previewText, "hello", nil, false},
		{"/a.txt", "", previewText, "", nil, false},
		{"/a.txt", "a\x00b", previewBinary, "00000000  61 00 62                                          |a.b|\n", nil,
			false},
		{"/a.html", "\xff", previewBinary, "00000000  ff                                                |.|\n", nil,
			false},
		{"/a.txt", long, previewText, long[:maxPreview], nil, true},
		{"/a.txt", "x" + long, previewText, ("x" + long)[:maxPreview-1], nil, true},
		{"/a.CSV", "a,\"b, c\"\n1", previewTable, "", [][]string{{"a", "b, c"}, {"1"}}, false},
		{"/a.csv", "a;b;c,d\n1;2;3", previewTable, "", [][]string{{"a", "b", "c,d"}, {"1", "2", "3"}}, false},
		{"/a.tsv", "a\tb\n", previewTable, "", [][]string{{"a", "b"}}, false},
		{"/a.csv", "", previewText, "", nil, false},
		{"/a.md", "# x", previewMarkdown, "# x", nil, false},
		{"/a.html", "<p>", previewHTML, "<p>", nil, false},
	} {
		p := &preview{Entry: guest.Entry{Path: test.path}, Kind: kindOf(test.path)}
		p.fill([]byte(test.content))
		same := slices.EqualFunc(p.Rows, test.rows, slices.Equal[[]string])
		if p.Kind != test.kind || p.Text != test.text || !same || p.Cut != test.cut {
			t.Errorf("%s %.20q: got %s %.60q %q cut=%v", test.path, test.content, p.Kind, p.Text, p.Rows, p.Cut)
		}
	}
	wide := &preview{Entry: guest.Entry{Path: "/a.csv"}, Kind: previewTable}
	wide.fill([]byte(strings.Repeat(strings.Repeat("x,", 2*maxColumns)+"\n", 2*maxRows)))
	if len(wide.Rows) != maxRows || len(wide.Rows[0]) != maxColumns+1 || !wide.Cut {
		t.Errorf("a large table: got %d rows", len(wide.Rows))
	}
}

// FuzzFill: no content makes a preview fail.
func FuzzFill(f *testing.F) {
	f.Add("a,b\n\"", true)
	f.Add("\x00\xff", false)
	f.Fuzz(func(t *testing.T, content string, table bool) {
		name := map[bool]string{true: "/a.csv", false: "/a.tsv"}[table]
		p := &preview{Entry: guest.Entry{Path: name}, Kind: previewTable}
		p.fill([]byte(content))
		if p.Kind == previewTable && len(p.Rows) == 0 {
			t.Error("a table without rows")
		}
	})
}
