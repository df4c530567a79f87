package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	section = regexp.MustCompile(`(?m)^## .*$`)
	dropped = regexp.MustCompile(`[^\pL\pN_ -]`) // from a heading in its anchor
)

// anchor returns the anchor that GitHub gives a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
}

// TestDocsLinks follows the links between the files of the repository, and finds sections that a
// file has twice.
func TestDocsLinks(t *testing.T) {
	checked := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"node_modules", ".git", "bin", "testdata"}, d.Name()) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".md") || d.Name() == "SKILL.md" {
			return nil
		}
		sections := map[string]bool{}
		for _, s := range section.FindAllString(read(t, path), -1) {
			if sections[s] {
				t.Errorf("%s has %q twice", path, s)
			}
			sections[s] = true
		}
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			if strings.Contains(m[1], ":") { // another scheme
				continue
			}
			checked++
			file, fragment, _ := strings.Cut(m[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s does not exist", path, m[1])
			} else if fragment != "" && strings.HasSuffix(to, ".md") {
				var anchors []string
				for _, h := range heading.FindAllStringSubmatch(read(t, to), -1) {
					anchors = append(anchors, anchor(h[1]))
				}
				if !slices.Contains(anchors, fragment) {
					t.Errorf("%s: %s has no such heading", path, m[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 200 {
		t.Errorf("only %d links were found", checked)
	}
}
