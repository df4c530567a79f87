package websearch

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/download"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/websearch/backend"
)

// Without a search service each type of the tool is refused by name.
func TestNoBackend(t *testing.T) {
	for _, k := range Kinds(Options{}) {
		_, err := k.Bind(tool.Context{}, berth.NewTool(map[string]string{"type": k.Type}))
		if want := "Unsupported value: '" + k.Type +
			"' needs a search service, and this server has none."; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", k.Type, err, want)
		}
	}
}

// A text is a Fetcher of one page.
type text string

func (p text) Page(_ context.Context, address string, _ func(string) bool) (download.Page, error) {
	return download.Page{URL: address, MediaType: "text/plain", Content: []byte(p)}, nil
}

type none struct{ backend.Backend }

func newTool(t testing.TB, page string) *Tool {
	t.Helper()
	bound, err := bind(Options{Backend: none{}, Fetcher: text(page), Text: func(_ context.Context, _ string,
		content io.Reader) (string, error) {
		raw, err := io.ReadAll(content)
		return string(raw), err
	}}, tool.Context{}, berth.WebSearchTool{SearchContextSize: "low"})
	if err != nil {
		t.Fatal(err)
	}
	return bound.(*Tool)
}

// The parts of a long page are the page.
func TestParts(t *testing.T) {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "Line %d: Grüße.\n", i)
	}
	whole := strings.TrimSpace(b.String())
	w := newTool(t, whole)
	var parts []string
	for n := 1; ; n++ {
		found, err := w.open(t.Context(), "https://x.example/", n)
		if err != nil {
			t.Fatal(err)
		}
		part := found.Results[0].Text
		if len(part) > 8<<10 || n > 1 && !strings.HasPrefix(part, "Line ") {
			t.Errorf("part %d has %d bytes and begins with %.10q", n, len(part), part)
		}
		if parts = append(parts, part); n == found.Pages {
			break
		}
	}
	if strings.Join(parts, "") != whole || len(parts) < 8 {
		t.Errorf("%d parts are not the page", len(parts))
	}
	found, err := w.findIn(t.Context(), "https://x.example/", "LINE\n77: grüße")
	if err != nil || len(found.Results) != 1 || !strings.Contains(found.Results[0].Text, "Line 77: Grüße.") ||
		len(found.Results[0].Text) > 700 {
		t.Errorf("got %v, %v", found, err)
	}
	if found, err = w.findIn(t.Context(), "https://x.example/", "line"); err != nil || len(found.Results) != 5 {
		t.Errorf("many matches: got %d, %v", len(found.Results), err)
	}
}

func FuzzFindInPage(f *testing.F) {
	f.Add("Line one\nline İi two", "LINE")
	f.Add("a\xffb", "(")
	f.Fuzz(func(t *testing.T, page, pattern string) {
		if strings.TrimSpace(pattern) == "" {
			return
		}
		w := newTool(t, page)
		found, err := w.findIn(t.Context(), "https://x.example/", pattern)
		if err != nil {
			return // a pattern that is not UTF-8
		}
		for _, r := range found.Results {
			if !utf8.ValidString(r.Text) {
				t.Errorf("a match is not text: %q", r.Text)
			}
		}
		opened, err := w.open(t.Context(), "https://x.example/", 1)
		if err != nil || !utf8.ValidString(opened.Results[0].Text) {
			t.Errorf("got %v, %v", opened, err)
		}
	})
}
