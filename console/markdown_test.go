package console

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

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
		if got := string(markdown(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzMarkdown checks that a browser finds no element and no attribute in a text's HTML but
// those of Markdown.
func FuzzMarkdown(f *testing.F) {
	for _, seed := range []string{"<script>alert(1)</script>", "[a](javascript:alert(1))", "[a](JaVaScRiPt&colon;alert(1))", "[a](data:text/html,x \"t\")", "![a](x \"onerror=y\")",
		"<a href=x", "```\"><img src=x onerror=y>\nx\n```", "| a | b |\n|:-|-:|\n| <b> | `|` |", "<!-- x --> <![CDATA[ x ]]> <?x?> <!X>", "<svg><![CDATA[><img src=x onerror=y>]]>",
		"<https://x/\"onmouseover=\"y>", "[x]: javascript:y\n[x]", "\\<img src=x\\>", "&lt;img src=x onerror=y&gt;", "1. a\n   - b\n\n> c\n\n---\n", "\x00<scr\x00ipt>"} {
		f.Add(seed)
	}
	elements := strings.Fields("html head body p h1 h2 h3 h4 h5 h6 em strong code pre del br hr ul ol li blockquote a span table thead tbody tr th td")
	f.Fuzz(func(t *testing.T, text string) {
		out := string(markdown(text))
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
					if u, err := url.Parse(a.Val); err != nil || !slices.Contains([]string{"http", "https", "mailto"}, u.Scheme) {
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
func TestCostlyMarkdown(t *testing.T) {
	for name, text := range map[string]string{"marks": strings.Repeat("*a_", 100_000), "links": strings.Repeat("[", 100_000), "quotes": strings.Repeat(">", 100_000),
		"quotes with spaces": strings.Repeat("> ", 50_000) + "a", "lists": strings.Repeat("- ", 50_000) + "a", "lines": strings.Repeat("*a_\n", 50_000)} {
		if got := string(markdown(text)); !strings.HasPrefix(got, "<pre>") {
			t.Errorf("%s: got %.80q", name, got)
		}
	}
	for name, text := range map[string]string{"a list": strings.Repeat("* an *item*\n", 500), "a table": "| a | b |\n|---|---|\n" + strings.Repeat("| 1 | 2 |\n", 1000),
		"paragraphs": strings.Repeat("Some **bold** text with `code` and [a link](https://example.com/).\n\n", 2000)} {
		if got := string(markdown(text)); strings.HasPrefix(got, "<pre>") {
			t.Errorf("%s: got %.80q", name, got)
		}
	}
}
