package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// keyring is where Debian keeps the keys of its archive.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// hostSuite is the Debian release of this machine.
func hostSuite() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok && v != "" {
			return strings.Trim(v, `"`), nil
		}
	}
	return "", errors.New("/etc/os-release names no release; give the recipe a suite")
}

// hostMirrors are the sources of this machine's own apt for a suite, updates and
// security included: whoever may install packages here may build from them.
func hostMirrors(suite string) ([]string, error) {
	var lines []string
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, f := range append(files, "/etc/apt/sources.list") {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		switch filepath.Ext(f) {
		case ".sources":
			lines = append(lines, stanzas(string(text), suite)...)
		case ".list":
			lines = append(lines, oneLiners(string(text), suite)...)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("no apt source of this machine has the suite %s; give the recipe mirrors", suite)
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// stanzas reads sources in deb822 form.
func stanzas(text, suite string) []string {
	var lines []string
	for stanza := range strings.SplitSeq(text, "\n\n") {
		field := map[string]string{}
		for line := range strings.Lines(stanza) {
			if k, v, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, " ") {
				field[k] = strings.TrimSpace(v)
			}
		}
		if !slices.Contains(strings.Fields(field["Types"]), "deb") || field["Enabled"] == "no" {
			continue
		}
		for _, uri := range strings.Fields(field["URIs"]) {
			for _, s := range strings.Fields(field["Suites"]) {
				if ofSuite(s, suite) {
					lines = append(lines, source(uri, s, field["Components"], field["Signed-By"]))
				}
			}
		}
	}
	return lines
}

// oneLiners reads sources in the old form: deb [options] uri suite components.
func oneLiners(text, suite string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		if strings.HasPrefix(rest, "[") {
			if _, rest, ok = strings.Cut(rest, "]"); !ok {
				continue
			}
		}
		f := strings.Fields(rest)
		if len(f) >= 3 && ofSuite(f[1], suite) {
			lines = append(lines, source(f[0], f[1], strings.Join(f[2:], " "), ""))
		}
	}
	return lines
}

func ofSuite(s, suite string) bool {
	return s == suite || s == suite+"-updates" || s == suite+"-security" || s == suite+"/updates"
}

func source(uri, suite, components, signedBy string) string {
	if !strings.HasPrefix(signedBy, "/") { // absent, or the key itself
		signedBy = keyring
	}
	return fmt.Sprintf("deb [signed-by=%s] %s %s %s", signedBy, uri, suite, components)
}
