package gemini

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// A generation is parsed from the name of a model: gemini-2.5-flash,
// gemini-3-pro-preview. A name without a version counts as the latest.
type generation struct {
	known        bool
	major, minor int
	line         string // pro, flash, flash-lite …
}

var version = regexp.MustCompile(`gemini-(\d+)(?:\.(\d+))?-?([a-z-]*)`)

func generationOf(name string) generation {
	m := version.FindStringSubmatch(strings.ToLower(name))
	if m == nil {
		return generation{}
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return generation{true, major, minor, m[3]}
}

func (g generation) since(major, minor int) bool {
	return !g.known || cmp.Or(cmp.Compare(g.major, major), cmp.Compare(g.minor, minor)) >= 0
}

// signs reports whether the model requires signatures of its calls and accepts images
// in their outputs.
func (g generation) signs() bool { return g.since(3, 0) }

// level returns the thinking level for an effort. Thinking cannot be switched off, and
// the first Gemini 3 Pro has no medium level.
func (g generation) level(effort string) string {
	switch effort {
	case "none", "minimal", "low":
		return "LOW"
	case "medium":
		if g.known && g.major == 3 && g.minor == 0 && strings.HasPrefix(g.line, "pro") {
			return "HIGH"
		}
		return "MEDIUM"
	}
	return "HIGH"
}

// budget returns the thinking budget for an effort, in tokens.
func (g generation) budget(effort string) int32 {
	pro := strings.HasPrefix(g.line, "pro")
	switch effort {
	case "none":
		if pro {
			return 128 // thinking cannot be switched off
		}
		return 0
	case "minimal":
		return 512
	case "low":
		return 2048
	case "medium":
		return 8192
	}
	if pro && effort != "high" {
		return 32_768
	}
	return 24_576
}

// family returns the models that share signatures: all previews and dates of a model.
func family(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	name, _, _ = strings.Cut(name, "-preview")
	return strings.TrimSuffix(name, "-latest")
}
