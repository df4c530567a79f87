package markdown

import (
	"context"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command { // started by Render
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

func TestMarkdown(t *testing.T) {
	for text, want := range map[string]string{
		"# A\n\n*b* **c** `d` ~~e~~":  "<h1>A</h1>\n<p><em>b</em> <strong>c</strong> <code>d</code> <del>e</del></p>\n",
		"```go\nx < y\n```":           "<pre><code class=\"language-go\">x &lt; y\n</code></pre>\n",
		"a\nb":                        "<p>a<br>\nb</p>\n",
		"<b onclick=x>a</b>":          "<p>&lt;b onclick=x&gt;a&lt;/b&gt;</p>\n",
		"<div>\na\n</div>":            "<pre>&lt;div&gt;\na\n&lt;/div&gt;</pre>\n",
		"[a](javascript:alert(1))":    "<p><span>a</span></p>\n",
		"[a](/console/sign-out)":      "<p><span>a</span></p>\n",
		"[a](//berth.invalid)":        "<p><span>a</span></p>\n",
		"![a](https://berth.invalid)": `<p><a target="_blank" rel="noopener noreferrer nofollow" href="https://berth.invalid">a</a></p>` + "\n",
		"https://berth.invalid/":      `<p><a target="_blank" rel="noopener noreferrer nofollow" href="https://berth.invalid/">https://berth.invalid/</a></p>` + "\n",
		"<a@berth.invalid>":           `<p><a target="_blank" rel="noopener noreferrer nofollow" href="mailto:a@berth.invalid">a@berth.invalid</a></p>` + "\n",
	} {
		if got := render(t, text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzMarkdown checks that a browser finds no element and no attribute in a text's HTML but
// those of Markdown.
func FuzzMarkdown(f *testing.F) {
	for _, seed := range []string{"<script>alert(1)</script>", "[a](javascript:alert(1))",
		"[a](JaVaScRiPt&colon;alert(1))", "[a](data:text/html,x \"t\")", "![a](x \"onerror=y\")",
		"<a href=x", "```\"><img src=x onerror=y>\nx\n```", "| a | b |\n|:-|-:|\n| <b> | `|` |",
		"<!-- x --> <![CDATA[ x ]]> <?x?> <!X>", "<svg><![CDATA[><img src=x onerror=y>]]>",
		"<https://x/\"onmouseover=\"y>", "[x]: javascript:y\n[x]", "\\<img src=x\\>", "&lt;img src=x onerror=y&gt;",
		"1. a\n   - b\n\n> c\n\n---\n", "\x00<scr\x00ipt>"} {
		f.Add(seed)
	}
	elements := strings.Fields(
		"html head body p h1 h2 h3 h4 h5 h6 em strong code pre del br hr ul ol li blockquote a span table thead tbody tr th td")
	f.Fuzz(func(t *testing.T, text string) {
		out := render(t, text)
		root, err := html.Parse(strings.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		for n := range root.Descendants() {
			if n.Type != html.ElementNode {
				if n.Type == html.CommentNode {
					t.Errorf("a comment in %q", out)
				}
				continue
			}
			if !slices.Contains(elements, n.Data) {
				t.Errorf("an element %s in %q", n.Data, out)
			}
			for _, a := range n.Attr {
				switch a.Key {
				case "target", "rel", "class", "start":
				case "align":
					if n.Data != "td" && n.Data != "th" {
						t.Errorf("an attribute %s=%q of %s in %q", a.Key, a.Val, n.Data, out)
					}
				case "href":
					if u, err := url.Parse(a.Val); err != nil || !slices.Contains([]string{"http", "https", "mailto"},
						u.Scheme) {
						t.Errorf("a link to %q", a.Val)
					}
				default:
					t.Errorf("an attribute %s=%q in %q", a.Key, a.Val, out)
				}
			}
		}
	})
}

// A text that would keep the converter busy is shown as it is. Long texts as people write them are not.
func TestExcessive(t *testing.T) {
	for name, text := range map[string]string{"marks": strings.Repeat("*a_", 100_000), "links": strings.Repeat("[",
		100_000), "quotes": strings.Repeat(">", 100_000),
		"quotes with spaces": strings.Repeat("> ", 50_000) + "a", "lists": strings.Repeat("- ", 50_000) + "a",
		"numbered lists":        strings.Repeat("1. ", 5_000) + "a",
		"numbered lists at end": strings.Repeat("999999999)\t", 2_000),
		"lists with tabs":       strings.Repeat("+\t", 10_000) + "a",
		"lists of all kinds":    strings.Repeat("* 1. > ", 2_000) + "a",
		"lines":                 strings.Repeat("*a_\n", 50_000),
		"marks after a line of other white space": strings.Repeat("*a_ \n\u00a0\n", 10_000)} {
		if got := render(t, text); !strings.HasPrefix(got, "<pre>") {
			t.Errorf("%s: got %.80q", name, got)
		}
	}
	for name, text := range map[string]string{"a list": strings.Repeat("* an *item*\n", 500),
		"numbers": strings.Repeat("1. 2. 3.\n", 500), "a version": "1.2.3.4.5.6.7.8.9.1.2.3.4.5.6.7.8.9",
		"a table":    "| a | b |\n|---|---|\n" + strings.Repeat("| 1 | 2 |\n", 1000),
		"paragraphs": strings.Repeat("Some **bold** text with `code` and [a link](https://example.com/).\n\n", 2000),
		"a large table": strings.Repeat("|a", 19) + "\n" + strings.Repeat("|-", 19) + "\n" + strings.Repeat("|1|2\n",
			1000)} {
		if got := render(t, text); strings.HasPrefix(got, "<pre>") {
			t.Errorf("%s: got %.80q", name, got)
		}
	}
}

// growing are texts that once became far longer, or took a time in the square of their length.
var growing = map[string]func(n int) string{
	"a table that is filled up": func(n int) string {
		return strings.Repeat("|a", n/8) + "\n" + strings.Repeat("|-", n/8) + "\n" + strings.Repeat("|\n", n/4)
	},
	"a table in a quote": func(n int) string {
		return "> " + strings.Repeat("|a", n/10) + "\n> " + strings.Repeat("|-", n/10) + "\n" + strings.Repeat("> |\n",
			n/8)
	},
	"a table in a list": func(n int) string {
		return "1. " + strings.Repeat("|a", n/10) + "\n   " + strings.Repeat("|:-:", n/10) + "\n" +
			strings.Repeat("   |\n", n/10)
	},
	"many tables": func(n int) string {
		return strings.Repeat(strings.Repeat("|a", 100)+"\n"+strings.Repeat("|-", 100)+"\n"+strings.Repeat("|\n",
			100)+"\n", n/600)
	},
	"tables of one paragraph": func(n int) string { return strings.Repeat("|a|b\n|-|-\n", n/10) },
	"links to a long address": func(n int) string {
		return "[a]: http://x/" + strings.Repeat("y", n/2) + "\n\n" + strings.Repeat("[a]\n\n", n/10)
	},
	"images of a long address": func(n int) string {
		return "[a]: http://x/" + strings.Repeat("&", n/2) + "\n\n" + strings.Repeat("![a]\n\n", n/12)
	},
	"addresses":       func(n int) string { return strings.Repeat("a@b.c ", n/6) },
	"linked words":    func(n int) string { return strings.Repeat("www.a.b\n", n/8) },
	"entities":        func(n int) string { return strings.Repeat("&nGt;", n/5) },
	"quotation marks": func(n int) string { return strings.Repeat("\"", n) },
	"rules":           func(n int) string { return strings.Repeat("***\n", n/4) },
	"items":           func(n int) string { return strings.Repeat("-\n", n/2) },
	"deep items":      func(n int) string { return deepList(n) },
	"headings":        func(n int) string { return strings.Repeat("#\n", n/2) },
	"pipes in code": func(n int) string {
		return strings.Repeat("`\\|`|", 300) + "\n" + strings.Repeat("-|", 300) + "\n" + strings.Repeat("`\\|`|\n\n",
			n/8)
	},
	"HTML":        func(n int) string { return strings.Repeat("<p>\n\n", n/5) },
	"definitions": func(n int) string { return strings.Repeat("[a]: b\n", n/7) },
}

func deepList(n int) string {
	var b strings.Builder
	for depth := 0; b.Len() < n; depth++ {
		b.WriteString(strings.Repeat("  ", depth%300) + "- a\n")
	}
	return b.String()
}

// The HTML of a text is not longer than a multiple of the text, whichever it is.
func TestGrowth(t *testing.T) {
	for name, text := range growing {
		for _, n := range []int{3 << 10, 18 << 10, 60 << 10, 256 << 10} {
			checkGrowth(t, name, text(n))
		}
	}
}

// checkGrowth checks the bounds of the HTML of a text, and of its elements.
func checkGrowth(t *testing.T, name, text string) {
	t.Helper()
	out := render(t, text)
	if most := min(growth*len(text)+allowance, maxHTML) + len("<pre></pre>"); len(out) > most {
		t.Errorf("%s: %d bytes became %d, want at most %d", name, len(text), len(out), most)
	}
	if elements, most := strings.Count(out, "<"), 2*(4*len(text)+maxCells+10); elements > most {
		t.Errorf("%s: %d bytes became %d tags, want at most %d", name, len(text), elements, most)
	}
	// What this process renders has no allowance.
	if c := costOf(text); c.cheap(text) && len(out) > growth*len(text)+len("<pre></pre>") {
		t.Errorf("%s: %d cheap bytes became %d", name, len(text), len(out))
	}
}

// FuzzGrowth checks that no text becomes longer than the bounds, or has more tags.
func FuzzGrowth(f *testing.F) {
	for _, text := range growing {
		f.Add(text(600), 1)
		f.Add(text(60), 40)
	}
	f.Fuzz(func(t *testing.T, text string, times int) {
		if len(text) == 0 || times < 1 {
			return
		}
		checkGrowth(t, "text", strings.Repeat(text, min(times, 1+(64<<10)/len(text))))
	})
}

// A table has as many cells as its bound allows, and one row more makes it a paragraph.
func TestCells(t *testing.T) {
	table := func(rows int) string {
		return strings.Repeat("|a", 100) + "\n" + strings.Repeat("|-", 100) + "\n" + strings.Repeat("|\n", rows)
	}
	if got := render(t, table(100)); strings.Count(got, "<td>") != 100*100 {
		t.Errorf("got %d cells, want all", strings.Count(got, "<td>"))
	}
	if got := render(t, table(300)); strings.Contains(got, "<td>") || !strings.HasPrefix(got, "<p>|a|a") {
		t.Errorf("got %.80q, want a paragraph", got)
	}
	if got := string(RenderCheap(table(100))); !strings.HasPrefix(got, "<pre>|a|a") {
		t.Errorf("this process rendered a table that is filled up: %.80q", got)
	}
}

// A child that is ended keeps what it has rendered before, and a text that nobody can render
// is shown as it is.
func TestChild(t *testing.T) {
	long := strings.Repeat("*a*\n\n", 10_000)
	got := Render(t.Context(), []string{"**a**", long, "a <b>", long})
	if !strings.HasPrefix(string(got[1]), "<p><em>a</em></p>") || got[3] != got[1] {
		t.Errorf("got %.40q and %.40q of the child", got[1], got[3])
	}
	if got[0] != "<p><strong>a</strong></p>\n" || got[2] != "<p>a &lt;b&gt;</p>\n" {
		t.Errorf("got %q and %q", got[0], got[2])
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got := Render(ended, []string{"**a**", long}); got[0] != "<p><strong>a</strong></p>\n" ||
		!strings.HasPrefix(string(got[1]), "<pre>*a*") {
		t.Errorf("without a child: got %q and %.40q", got[0], got[1])
	}
}

// The HTML of a page is bounded as well: texts that do not fit are shown as they are.
func TestPage(t *testing.T) {
	text := strings.Repeat("|a", 140) + "\n" + strings.Repeat("|-", 140) + "\n" + strings.Repeat("|\n", 140)
	texts := slices.Repeat([]string{text}, 200)
	total := 0
	for _, html := range Render(t.Context(), texts) {
		total += len(html)
	}
	if most := maxOutput + len(texts)*(len(text)+len("<pre></pre>")); total > most {
		t.Errorf("got %d bytes, want at most %d", total, most)
	}
}

// render returns the HTML of a text.
func render(t *testing.T, text string) string {
	t.Helper()
	return string(Render(t.Context(), []string{text})[0])
}
