package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Recipe says what a template is made of. Its YAML is the file that
// `berth image build --file` takes.
//
// A recipe is trusted like a script that root runs: its packages and commands run
// as root on the machine that builds, behind no wall but chroot.
type Recipe struct {
	Name     string   `yaml:"name"`     // of the template: lower case letters, digits, . _ -
	From     string   `yaml:"from"`     // what it starts from: "debian", the default
	Suite    string   `yaml:"suite"`    // Debian release. Default: this machine's, or else bookworm
	Mirrors  []string `yaml:"mirrors"`  // apt source lines. Default: this machine's for Debian, or else deb.debian.org
	Packages []string `yaml:"packages"` // Debian packages, besides those that are required everywhere
	Files    []File   `yaml:"files"`    // written over what the packages brought
	Run      []string `yaml:"run"`      // sh commands, run as root inside after all else
}

// A File is a text file of a template. It belongs to root.
type File struct {
	Path    string `yaml:"path"` // absolute; its directories are made
	Mode    uint32 `yaml:"mode"` // permissions. Default: 0644
	Content string `yaml:"content"`
}

// Base is the recipe of the template "base": what hosted containers are known to
// have, as far as Debian has it and it helps without a network. npm does not: it
// is 349 packages.
func Base() Recipe {
	return Recipe{
		Name: "base",
		Packages: []string{
			"bash", "coreutils", "findutils", "grep", "sed", "gawk", "bc", "procps", "iproute2", "sudo",
			"less", "file", "tree", "zip", "unzip", "xz-utils", "curl", "ca-certificates", "git", "jq", "sqlite3",
			"python3", "python3-venv", "python3-pip", "python3-pandas", "python3-matplotlib", "python3-scipy",
			"python3-requests", "python3-openpyxl", "fonts-dejavu-core", "nodejs",
		},
		Run: []string{
			// scipy depends on all that it was compiled with. The compilers serve pip; this serves nobody.
			`rm -rf /usr/include/boost /usr/share/unicode/*Test*.txt /usr/lib/*/openblas-pthread/*.a /usr/lib/python3*/config-*/*.a`,
			// What is slow at its first use is done once, here: matplotlib's list of fonts.
			`setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/user python3 -c 'import pandas, matplotlib.pyplot'`,
		},
	}
}

// Digest returns the digest of what the recipe says and of what every build does,
// "sha256:…". It does not cover the recipe's name, nor what it leaves to the
// machine and to the day: with the same digest other versions of packages may
// come out.
func (r Recipe) Digest() string {
	r.Name = ""
	text, err := json.Marshal([]any{r, options, setup, cleanup})
	if err != nil {
		panic(err) // strings and numbers only
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var (
	suitePattern   = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)
	packagePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$`)
	mirrorPattern  = regexp.MustCompile(`^(deb |https?://|file:)[^\n]+$`)
)

// complete checks a recipe and fills in what it leaves to the machine.
func (r Recipe) complete() (Recipe, error) {
	if !namePattern.MatchString(r.Name) {
		return r, fmt.Errorf("the recipe's name %q must match %s", r.Name, namePattern)
	}
	if r.From != "" && r.From != "debian" {
		return r, fmt.Errorf("the recipe starts from %q; it can be built from \"debian\"", r.From)
	}
	if r.Suite == "" {
		r.Suite = hostSuite()
	}
	if !suitePattern.MatchString(r.Suite) {
		return r, fmt.Errorf("%q is not the name of a Debian release", r.Suite)
	}
	if len(r.Mirrors) == 0 {
		var err error
		if r.Mirrors, err = hostMirrors("/etc/apt", r.Suite); err != nil {
			return r, err
		}
		// The template itself names the mirror that everybody has.
		r.Files = append([]File{{Path: "/etc/apt/sources.list", Content: publicSources(r.Suite)}}, r.Files...)
	}
	for _, m := range r.Mirrors {
		if !mirrorPattern.MatchString(m) {
			return r, fmt.Errorf("%q is not an apt source", m)
		}
	}
	for _, p := range r.Packages {
		if !packagePattern.MatchString(p) {
			return r, fmt.Errorf("%q is not the name of a package", p)
		}
	}
	r.Files = slices.Clone(r.Files)
	for i, f := range r.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" || strings.ContainsRune(f.Path, 0) {
			return r, fmt.Errorf("file %q: the path must be absolute and without detours", f.Path)
		}
		if f.Mode > 0o7777 {
			return r, fmt.Errorf("file %s: mode %o is more than permissions", f.Path, f.Mode)
		}
		if f.Mode == 0 {
			r.Files[i].Mode = 0o644
		}
	}
	if slices.ContainsFunc(r.Run, func(s string) bool { return strings.TrimSpace(s) == "" }) {
		return r, errors.New("the recipe has an empty command")
	}
	return r, nil
}
