package document

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// hiddenElements have content that is not text of the page.
var hiddenElements = map[atom.Atom]bool{atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true,
	atom.Svg: true, atom.Iframe: true}

// blockElements start a new line.
var blockElements = map[atom.Atom]bool{
	atom.P: true, atom.Div: true, atom.Br: true, atom.Li: true, atom.Tr: true, atom.H1: true, atom.H2: true,
	atom.H3: true, atom.H4: true, atom.H5: true,
	atom.H6: true, atom.Pre: true, atom.Table: true, atom.Section: true, atom.Article: true, atom.Header: true,
	atom.Footer: true, atom.Dt: true, atom.Dd: true,
	atom.Title: true, atom.Blockquote: true, atom.Ul: true, atom.Ol: true, atom.Hr: true, atom.Figcaption: true,
}

// readHTML reads a page token by token: a tree of endless depth has no cost.
func readHTML(content []byte, out *text) error {
	z := html.NewTokenizer(bytes.NewReader(content))
	z.SetMaxBuf(16 << 20)
	hidden, pre := 0, 0
	for {
		switch z.Next() {
		case html.ErrorToken:
			if err := z.Err(); !errors.Is(err, io.EOF) {
				return invalid("The page could not be read: %v.", err)
			}
			return nil
		case html.TextToken:
			if hidden > 0 {
				continue
			}
			s := string(z.Text())
			if pre == 0 {
				s = spaced(s)
			}
			if err := out.add(s); err != nil {
				return err
			}
		case html.StartTagToken, html.EndTagToken, html.SelfClosingTagToken:
			t := z.Token()
			step := map[html.TokenType]int{html.StartTagToken: 1, html.EndTagToken: -1}[t.Type]
			if hiddenElements[t.DataAtom] {
				hidden = max(0, hidden+step)
			}
			if t.DataAtom == atom.Pre {
				pre = max(0, pre+step)
			}
			separator := ""
			switch {
			case blockElements[t.DataAtom]:
				separator = "\n"
			case t.DataAtom == atom.Td || t.DataAtom == atom.Th:
				separator = "\t"
			}
			if separator == "" || hidden > 0 {
				continue
			}
			if err := out.add(separator); err != nil {
				return err
			}
		}
	}
}

// spaced replaces each run of white space by one space.
func spaced(s string) string {
	words := strings.Join(strings.Fields(s), " ")
	if words == "" {
		if s != "" {
			return " "
		}
		return ""
	}
	if strings.TrimLeft(s, " \t\r\n") != s {
		words = " " + words
	}
	if strings.TrimRight(s, " \t\r\n") != s {
		words += " "
	}
	return words
}
