package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// keyring is the path of the Debian archive's keys.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// hostSuite returns the Debian release of this machine, or bookworm if it runs
// something else.
func hostSuite() string {
	text, _ := os.ReadFile("/etc/os-release") // absent: not a Debian
	release := map[string]string{}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		release[k] = strings.Trim(v, `"`)
	}
	if release["ID"] == "debian" && release["VERSION_CODENAME"] != "" {
		return release["VERSION_CODENAME"]
	}
	return "bookworm"
}

// publicSources returns the public sources of a suite.
func publicSources(suite string) string {
	const debian = "http://deb.debian.org/debian"
	return fmt.Sprintf("deb %[1]s %[2]s main\ndeb %[1]s %[2]s-updates main\ndeb %[1]s-security %[2]s-security main\n",
		debian, suite)
}

// hostMirrors returns the apt sources in dir (/etc/apt) for a suite of Debian, updates and
// security included. It omits third-party sources, which it detects by their keys: only
// Debian's own keys sign Debian.
func hostMirrors(dir, suite string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "sources.list.d", "*"))
	if err != nil {
		return nil, err
	}
	var all []source
	for _, f := range append(files, filepath.Join(dir, "sources.list")) {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // apt ignores a missing sources.list, too
		}
		switch filepath.Ext(f) {
		case ".sources":
			all = append(all, stanzas(string(text))...)
		case ".list":
			all = append(all, oneLiners(string(text))...)
		}
	}
	var lines []string
	for _, s := range all {
		if s.ofDebian(suite) {
			lines = append(lines, s.String())
		}
	}
	if len(lines) == 0 {
		for _, s := range oneLiners(publicSources(suite)) {
			lines = append(lines, s.String())
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// A source is one suite of an archive.
type source struct {
	uri, suite string
	components []string
	signedBy   string // path of a keyring, or a key; "" selects apt's own keyrings
}

// components are the components of Debian that a template may use.
var components = []string{"main", "contrib", "non-free", "non-free-firmware"}

// ofDebian reports whether the source is Debian's for a suite.
func (s source) ofDebian(suite string) bool {
	switch s.suite {
	case suite, suite + "-updates", suite + "-security", suite + "/updates":
	default:
		return false
	}
	foreign := func(c string) bool { return !slices.Contains(components, c) }
	return slices.Contains(s.components, "main") && !slices.ContainsFunc(s.components, foreign) &&
		(s.signedBy == "" || strings.HasPrefix(filepath.Base(s.signedBy), "debian-archive-"))
}

// String returns the source as a line of sources.list. The line names a keyring of the host,
// because the new chroot has no keys yet.
func (s source) String() string {
	by := s.signedBy
	if by == "" {
		by = keyring
	}
	return fmt.Sprintf("deb [signed-by=%s] %s %s %s", by, s.uri, s.suite, strings.Join(s.components, " "))
}

// stanzas reads sources in deb822 form (sources.list(5)).
func stanzas(text string) []source {
	var all []source
	for stanza := range strings.SplitSeq(text, "\n\n") {
		field := fields(stanza)
		if !slices.Contains(strings.Fields(field["types"]), "deb") || slices.Contains([]string{"no", "false"},
			field["enabled"]) {
			continue
		}
		for _, uri := range strings.Fields(field["uris"]) {
			for _, suite := range strings.Fields(field["suites"]) {
				all = append(all, source{uri, suite, strings.Fields(field["components"]), field["signed-by"]})
			}
		}
	}
	return all
}

// fields parses the fields of a deb822 stanza, with names in lower case. A line that starts
// with a blank continues the previous field.
func fields(stanza string) map[string]string {
	field := map[string]string{}
	name := ""
	for line := range strings.Lines(stanza) {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			field[name] += " " + strings.TrimSpace(line)
		default:
			k, v, _ := strings.Cut(line, ":")
			name = strings.ToLower(k)
			field[name] = strings.TrimSpace(v)
		}
	}
	return field
}

// oneLiners reads sources in the old form: deb [option=value …] uri suite component…
func oneLiners(text string) []source {
	var all []source
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		by := ""
		if strings.HasPrefix(rest, "[") {
			var options string
			options, rest, _ = strings.Cut(rest[1:], "]")
			for _, o := range strings.Fields(options) {
				if v, ok := strings.CutPrefix(o, "signed-by="); ok {
					by = v
				}
			}
		}
		if f := strings.Fields(rest); len(f) >= 3 {
			all = append(all, source{f[0], f[1], f[2:], by})
		}
	}
	return all
}
