package tool

import (
	"path"
	"strings"
)

// families maps a part of a model's name to its family. The first match counts.
var families = []struct{ part, family string }{
	{"claude", "claude"}, {"gemini", "gemini"}, {"gemma", "other"}, {"gpt-oss", "other"},
	{"gpt", "gpt"}, {"codex", "gpt"}, {"chatgpt", "gpt"},
}

// Family returns the family of a model: gpt, claude, gemini, or other. The name is the
// upstream's, with an optional vendor prefix as in "vendor/model".
func Family(model string) string {
	name := strings.ToLower(path.Base(model))
	for _, f := range families {
		if strings.Contains(name, f.part) {
			return f.family
		}
	}
	if strings.HasPrefix(name, "o1") || strings.HasPrefix(name, "o3") || strings.HasPrefix(name, "o4") {
		return "gpt"
	}
	return "other"
}
