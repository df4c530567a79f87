package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// yamlBlock matches a block, the comment above it, and its indentation.
var yamlBlock = regexp.MustCompile("(?m)^(?: *(<!-- not run: .* -->)\n)?( *)```yaml\n((?s:.*?))\n *```$")

// TestManuals loads the configurations (yaml) that the documents show. The comment "not run:"
// above a block marks one of another program.
func TestManuals(t *testing.T) {
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	loaded := 0
	for _, path := range append(paths, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "" {
				continue
			}
			example := strings.ReplaceAll(m[3], "\n"+m[2], "\n")
			if _, err := readConfig(t, strings.TrimPrefix(example, m[2])+"\n"); err != nil {
				t.Errorf("%s: %v in\n%s", path, err, example)
			}
			loaded++
		}
	}
	if loaded < 8 {
		t.Errorf("only %d configurations were found", loaded)
	}
}
