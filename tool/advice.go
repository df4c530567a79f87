package tool

import (
	"embed"
	"path"
	"strings"

	"github.com/berth-run/berth"
)

// advice has, by family of models, what they are told of the shell beyond its
// description: what each is known to get wrong.
//
//go:embed advice/*.md
var advice embed.FS

// families are known by what their names hold.
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

// Advise returns a function with what a model needs to be told of it. A function of
// the client's is the client's to describe.
func Advise(t Tool, model string) berth.FunctionTool {
	f := t.Spec().Function
	if f.Name != ShellName {
		return f
	}
	if _, ok := t.(*Shell); !ok {
		return f
	}
	text, err := advice.ReadFile("advice/" + Family(model) + ".md")
	if err != nil {
		panic(err) // each family has its file
	}
	f.Description = strings.TrimRight(f.Description, "\n") + "\n" + string(text)
	return f
}
