package build

import (
	"strings"
	"testing"
)

// Only references to variables are replaced. What a shell would execute is literal.
func TestExpand(t *testing.T) {
	variables := map[string]string{"PATH": "/bin", "A": "$(id)", "EMPTY": ""}
	for text, want := range map[string]string{
		"plain":                    "plain",
		"${PATH}:/my/bin":          "/bin:/my/bin",
		"$PATH:/my/bin":            "/bin:/my/bin",
		"$(echo pwned)":            "$(echo pwned)",
		"`id`":                     "`id`",
		"$A":                       "$(id)",
		`\$PATH`:                   "$PATH",
		`a\nb`:                     `a\nb`,
		"${EMPTY:-other}":          "other",
		"${PATH:-other}":           "/bin",
		"${PATH:+instead}":         "instead",
		"${EMPTY:+instead}":        "",
		"$NONE|$5|$$|${PATH|$":     "|$5|$$|${PATH|$",
		"\"quoted\" 'too' $PATH;x": "\"quoted\" 'too' /bin;x",
	} {
		got, err := expand(text, func(name string) (string, error) { return variables[name], nil })
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"${PATH}:x", "$(a)", `\$a`, "${A:-b}", "$A$B${C:+d}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		calls := 0
		got, err := expand(text, func(name string) (string, error) { calls++; return "", nil })
		if err != nil || len(got) > len(text) {
			t.Errorf("%q became %q, %v", text, got, err)
		}
		if !strings.Contains(text, "$") && (calls > 0 || got != text) {
			t.Errorf("%q has no variable and became %q", text, got)
		}
	})
}
