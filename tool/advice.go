package tool

import (
	"path"
	"strings"
)

// families are the families of models by a part of their names.
var families = []struct{ name, part string }{
	{"claude", "claude"}, {"gemini", "gemini"}, {"gemma", "other"}, {"gpt-oss", "other"},
	{"gpt", "gpt"}, {"codex", "gpt"}, {"chatgpt", "gpt"},
}

// Family returns the family of a model by its upstream's name for it, which may be
// below a vendor's: gpt, claude, gemini, or other.
func Family(model string) string {
	name := strings.ToLower(path.Base(model))
	for _, f := range families {
		if strings.Contains(name, f.name) {
			return f.part
		}
	}
	if strings.HasPrefix(name, "o1") || strings.HasPrefix(name, "o3") || strings.HasPrefix(name, "o4") {
		return "gpt"
	}
	return "other"
}
