package document

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// webPage is the format of a page with its origin: a line with its URL, a line with its
// media type, and its HTML. The text is a line with the title, and then Markdown.
const webPage = ".webpage"

func init() { parsers[webPage] = readWebPage }

// WebPage returns the title of a web page and its main content as Markdown, which it reads
// in a process made by child. address is the page's URL, against which links are resolved;
// mediaType may name the charset. Its errors are those of Text.
func WebPage(ctx context.Context, child Child, address, mediaType string, content io.Reader) (title, markdown string,
	err error) {
	line := strings.NewReplacer("\r", "", "\n", "")
	head := strings.NewReader(line.Replace(address) + "\n" + line.Replace(mediaType) + "\n")
	text, err := child.text(ctx, webPage, io.MultiReader(head, content))
	if err != nil {
		return "", "", err
	}
	title, markdown, _ = strings.Cut(text, "\n")
	return title, markdown, nil
}

// readWebPage reads the format webPage.
func readWebPage(content []byte, out *text) error {
	address, rest, _ := bytes.Cut(content, []byte("\n"))
	mediaType, page, _ := bytes.Cut(rest, []byte("\n"))
	decoded, err := decodePage(page, string(mediaType))
	if err != nil {
		return err
	}
	doc, err := html.Parse(bytes.NewReader(decoded))
	if err != nil { // for example, nested too deeply; without a tree there is no Markdown
		if err := out.add("\n"); err != nil {
			return err
		}
		return readHTML(decoded, out)
	}
	from, err := url.Parse(string(address))
	if err != nil {
		from = &url.URL{}
	}
	p := tidied(doc, from)
	markdown, err := pageConverter.ConvertNode(p.main())
	if err != nil {
		return invalid("The page could not be read: %v.", err)
	}
	return errors.Join(out.add(p.title+"\n"), out.add(string(markdown)))
}

// decodePage returns HTML in UTF-8. The charset is that of the media type, of the page's
// meta elements, or a guess.
func decodePage(page []byte, mediaType string) ([]byte, error) {
	r, err := charset.NewReader(bytes.NewReader(page), mediaType)
	if errors.Is(err, io.EOF) {
		return nil, nil // empty
	}
	if err != nil {
		return nil, fmt.Errorf("find charset: %w", err)
	}
	decoded, err := io.ReadAll(io.LimitReader(r, maxParsed+1))
	if err != nil {
		return nil, invalid("The page is not valid in its charset.")
	}
	if len(decoded) > maxParsed {
		return nil, tooLarge(maxParsed)
	}
	return decoded, nil
}

var pageConverter = converter.NewConverter(converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(),
	table.NewTablePlugin()))

// droppedElements are not content of a page. Their content is dropped as well.
var droppedElements = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Svg: true, atom.Math: true,
	atom.Iframe: true, atom.Object: true,
	atom.Embed: true, atom.Canvas: true, atom.Video: true, atom.Audio: true, atom.Button: true, atom.Select: true,
	atom.Input: true, atom.Textarea: true,
	atom.Nav: true, atom.Aside: true, atom.Footer: true, atom.Dialog: true,
}

// droppedRoles are the ARIA roles of elements that are not content of a page.
var droppedRoles = map[string]bool{"navigation": true, "banner": true, "contentinfo": true, "search": true,
	"complementary": true, "dialog": true, "alertdialog": true}

// A tidyPage is a page without what a reader does not see or does not read it for.
type tidyPage struct {
	base  *url.URL
	title string
	body  *html.Node
	mains []*html.Node // elements that say that they are the main content
	whole bool         // base was set by the page
}

// tidied changes doc. A tree of html.Parse has at most 512 levels.
func tidied(doc *html.Node, from *url.URL) *tidyPage {
	p := &tidyPage{base: from, body: doc}
	p.walk(doc)
	return p
}

func (p *tidyPage) walk(n *html.Node) {
	for c := n.FirstChild; c != nil; {
		next := c.NextSibling
		if c.Type == html.CommentNode || c.Type == html.ElementNode && p.visit(c) {
			n.RemoveChild(c)
		} else {
			p.walk(c)
		}
		c = next
	}
}

// visit records what an element says of the page. It reports whether to drop the element.
func (p *tidyPage) visit(n *html.Node) (drop bool) {
	if droppedElements[n.DataAtom] || hidden(n) || droppedRoles[attribute(n, "role")] {
		return true
	}
	switch n.DataAtom {
	case atom.Title:
		if p.title == "" && n.FirstChild != nil {
			p.title = strings.Join(strings.Fields(n.FirstChild.Data), " ")
		}
	case atom.Base:
		if u, err := p.base.Parse(attribute(n, "href")); err == nil && !p.whole && attribute(n, "href") != "" {
			p.base, p.whole = u, true
		}
	case atom.Body:
		p.body = n
	case atom.Main, atom.Article:
		p.mains = append(p.mains, n)
	case atom.A:
		p.link(n)
	case atom.Td, atom.Th: // a cell across a billion columns would be written as a billion cells
		n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool {
			return strings.HasSuffix(a.Key, "span") && len(a.Val) > 2
		})
	case atom.Img, atom.Picture, atom.Source:
		alt := strings.Join(strings.Fields(attribute(n, "alt")), " ")
		if alt == "" && n.DataAtom != atom.Picture {
			return true
		}
		if n.DataAtom == atom.Img {
			*n = html.Node{Type: html.TextNode, Data: "(image: " + alt + ") ", Parent: n.Parent,
				PrevSibling: n.PrevSibling, NextSibling: n.NextSibling}
		}
	default:
		if attribute(n, "role") == "main" {
			p.mains = append(p.mains, n)
		}
	}
	return false
}

// link makes the target of a link absolute. A link to another place of the page, or one that
// is not for HTTP, becomes plain text.
func (p *tidyPage) link(n *html.Node) {
	target := strings.TrimSpace(attribute(n, "href"))
	n.Attr = nil
	u, err := p.base.Parse(target)
	if err == nil && target != "" && !strings.HasPrefix(target, "#") && (u.Scheme == "http" || u.Scheme == "https") {
		n.Attr = []html.Attribute{{Key: "href", Val: u.String()}}
		return
	}
	n.DataAtom, n.Data = atom.Span, "span"
}

// main returns the element with the main content: the first that says so and has at least a
// third of the text, or else the whole body.
func (p *tidyPage) main() *html.Node {
	all := textLength(p.body)
	for _, n := range p.mains {
		if 3*textLength(n) >= all {
			return n
		}
	}
	return p.body
}

func textLength(n *html.Node) (length int) {
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			length += len(strings.TrimSpace(c.Data))
		}
	}
	return length
}

// hidden reports whether an element is not shown to readers. A style sheet may hide others.
func hidden(n *html.Node) bool {
	style := strings.ToLower(strings.ReplaceAll(attribute(n, "style"), " ", ""))
	return hasAttribute(n, "hidden") || attribute(n, "aria-hidden") == "true" ||
		strings.Contains(style, "display:none") || strings.Contains(style, "visibility:hidden")
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasAttribute(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}
