package site

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// summary is the description of Berth in llms.txt.
const summary = "A self-hosted server for OpenAI's Responses API that gives each response a sandboxed Linux container, for any model."

// llms returns llms.txt: the pages by chapter, with links to their Markdown.
func (s *Site) llms() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Berth\n\n> %s\n\nVersion %s. openapi.json beside this file describes all routes of the API.\n", summary,
		s.options.Version)
	for _, c := range s.nav.chapters {
		fmt.Fprintf(&b, "\n## %s\n\n", c.Title)
		for _, g := range c.Groups {
			for _, e := range g.Entries {
				switch {
				case e.Source == "":
					fmt.Fprintf(&b, "- [%s](openapi.json): %s\n", e.Title, e.Text)
				case e.Text == "":
					fmt.Fprintf(&b, "- [%s](%s)\n", e.Title, e.Source)
				default:
					fmt.Fprintf(&b, "- [%s](%s): %s\n", e.Title, e.Source, e.Text)
				}
			}
		}
	}
	return []byte(b.String())
}

var mdLink = regexp.MustCompile(`\]\((\.\./[^)\s]*)\)`)

// source returns the Markdown of a page. Links to files that the site lacks lead to the repository.
func (s *Site) source(name string) ([]byte, error) {
	src, err := fs.ReadFile(s.options.Docs, name)
	if err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	return mdLink.ReplaceAllFunc(src, func(m []byte) []byte {
		link := string(mdLink.FindSubmatch(m)[1])
		if to := s.address(name, link); strings.Contains(to, ":") {
			link = to
		}
		return []byte("](" + link + ")")
	}), nil
}
