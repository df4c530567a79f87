package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`^#{1,6} +(.*?) *$`)
	codePattern    = regexp.MustCompile("`[^`]*`")
)

// BrokenLinks returns the relative links in Markdown files below root that lead to
// no file or to no heading of their file, and the sections that a file has twice. Code and links to other sites are
// skipped. Package site checks the links of the web pages that it makes of docs.
func BrokenLinks(root string) ([]string, error) {
	pages := map[string][]string{} // the lines of each page outside of code blocks
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (slices.Contains([]string{"node_modules", "testdata", "dist"}, d.Name()) ||
			strings.HasPrefix(d.Name(), ".") && name != root) {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || path.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		pages[name] = prose(string(text))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read pages: %w", err)
	}
	var broken []string
	for page, lines := range pages {
		sections := map[string]bool{}
		for _, line := range lines {
			if strings.HasPrefix(line, "## ") && path.Base(page) != "SKILL.md" {
				if sections[line] {
					broken = append(broken, fmt.Sprintf("%s has %q twice", page, line))
				}
				sections[line] = true
			}
			for _, m := range linkPattern.FindAllStringSubmatch(codePattern.ReplaceAllString(line, ""), -1) {
				if problem := checkLink(pages, page, m[1]); problem != "" {
					broken = append(broken, fmt.Sprintf("%s links to %s: %s", page, m[1], problem))
				}
			}
		}
	}
	return broken, nil
}

// checkLink returns why a link of a page is broken, or "".
func checkLink(pages map[string][]string, page, link string) string {
	if strings.Contains(link, ":") {
		return ""
	}
	file, anchor, hasAnchor := strings.Cut(link, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
		if _, err := os.Stat(target); err != nil {
			return "no such file"
		}
	}
	if !hasAnchor {
		return ""
	}
	for _, line := range pages[target] {
		if m := headingPattern.FindStringSubmatch(line); m != nil && slug(m[1]) == anchor {
			return ""
		}
	}
	return "no such heading"
}

// prose returns the lines of a page without its fenced code blocks.
func prose(text string) []string {
	var lines []string
	fence := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		switch {
		case fence == "" && len(ticks) >= 3:
			fence = ticks
		case fence != "" && strings.HasPrefix(line, fence):
			fence = ""
		case fence == "":
			lines = append(lines, line)
		}
	}
	return lines
}

// slug returns the anchor of a heading as GitHub makes it.
func slug(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
