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

// A Recipe describes how to build a template. Its YAML form is the file of
// `berth image build --file`.
//
// A recipe is trusted like a script that the builder runs: its packages and commands run as root
// on the building machine, isolated only by chroot. If an ordinary user builds, they run as root
// of a user namespace.
type Recipe struct {
	Name  string `yaml:"name"`  // of the template: lower case letters, digits, . _ -
	From  string `yaml:"from"`  // base to start from: "debian", the default
	Suite string `yaml:"suite"` // Debian release; default: this machine's, or else bookworm
	// apt source lines; default: this machine's for Debian, or else deb.debian.org
	Mirrors  []string `yaml:"mirrors"`
	Packages []string `yaml:"packages"` // Debian packages to add to the required ones
	// Files that packages do not install: absolute, with * for any text, also with slashes, and ? for a character.
	// Python's own modules cannot be left out.
	Exclude []string `yaml:"exclude" json:",omitempty"`
	Files   []File   `yaml:"files"`                 // written after the packages are installed
	Run     []string `yaml:"run"`                   // sh commands, run last, as root in the template
	Env     []string `yaml:"env" json:",omitempty"` // KEY=value, of the commands in containers
}

// A File is a text file of a template. It belongs to root.
type File struct {
	Path    string `yaml:"path"` // absolute; missing directories are created
	Mode    uint32 `yaml:"mode"` // permissions; default: 0644
	Content string `yaml:"content"`
}

// Base returns the recipe of the template "base": the tools that hosted containers are known
// to have, as far as Debian packages them and they work without a network. It omits npm,
// which is 349 packages. The kernels of bash and JavaScript are not in Debian; they come from PyPI.
func Base() Recipe {
	return Recipe{
		Name: "base",
		Packages: []string{
			"bash", "coreutils", "findutils", "grep", "sed", "gawk", "bc", "procps", "iproute2", "sudo",
			"less", "file", "tree", "zip", "unzip", "xz-utils", "curl", "wget", "ca-certificates", "git", "jq",
			"sqlite3",
			"make", "nano", "ripgrep", "fonts-dejavu-core", "nodejs",
			"python3", "python-is-python3", "python3-venv", "python3-pip", "python3-ipykernel", "python3-pandas",
			"python3-matplotlib", "python3-scipy",
			"python3-requests", "python3-openpyxl", "python3-xlsxwriter", "python3-docx", "python3-pypdf",
			"python3-bs4",
			"python3-yaml", "python3-tabulate",
		},
		// scipy depends on its whole build environment: the compilers are useful to pip, these files are not. The
		// tests of the libraries are 138 MB and a fifth of what Python compiles; no module of theirs imports them.
		Exclude: []string{
			"/usr/include/boost/*", "/usr/lib/*/openblas-pthread/*.a", "/usr/lib/python3*/config-*/*.a",
			"/usr/share/unicode/*Test*.txt",
			"/usr/lib/python3/dist-packages/matplotlib/*tests/*", "/usr/lib/python3/dist-packages/numpy/*tests/*",
			"/usr/lib/python3/dist-packages/pandas/*tests/*", "/usr/lib/python3/dist-packages/scipy/*tests/*",
			"/usr/lib/python3/dist-packages/sympy/*tests/*",
		},
		Files: []File{{Path: "/usr/local/share/jupyter/kernels/javascript/kernel.json", Content: javascriptKernel}},
		Run: []string{
			"python3 -m pip install --no-cache-dir bash_kernel==0.10.0 deno==2.9.8",
			"python3 -m bash_kernel.install --prefix /usr/local",
			// The first import of matplotlib builds its font list, which is slow.
			`setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/user python3 -c 'import pandas, matplotlib.pyplot'`,
		},
	}
}

// javascriptKernel makes Deno, whose package on PyPI has the whole program, a kernel of
// Jupyter for JavaScript and TypeScript.
const javascriptKernel = `{
 "argv": ["deno", "jupyter", "--kernel", "--conn", "{connection_file}"],
 "display_name": "JavaScript (Deno)",
 "language": "typescript",
 "env": {"NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}
}
`

// Digest returns a digest, "sha256:…", of the recipe and of the steps common to every build.
// It does not cover the name, nor what depends on the machine and the day: the same recipe
// may yield other package versions.
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
	excludePattern = regexp.MustCompile(`^/[^\n\x00\[\]\\]+$`)
	packagePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$`)
	mirrorPattern  = regexp.MustCompile(`^(deb |https?://|file:)[^\n]+$`)
)

// complete validates a recipe and fills in its defaults.
func (r Recipe) complete() (Recipe, error) {
	if !namePattern.MatchString(r.Name) {
		return r, fmt.Errorf("the recipe's name %q must match %s", r.Name, namePattern)
	}
	if r.From != "" && r.From != "debian" {
		return r, fmt.Errorf("unknown base %q in \"from\": only \"debian\" is supported", r.From)
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
		// The template itself uses the public mirror.
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
	for _, x := range r.Exclude {
		if !excludePattern.MatchString(x) {
			return r, fmt.Errorf("%q in \"exclude\" is not a pattern of absolute paths", x)
		}
	}
	r.Files = slices.Clone(r.Files)
	for i, f := range r.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" || strings.ContainsRune(f.Path, 0) {
			return r, fmt.Errorf("file %q: the path must be absolute and clean", f.Path)
		}
		if f.Mode > 0o7777 {
			return r, fmt.Errorf("file %s: mode %o has bits beyond permissions", f.Path, f.Mode)
		}
		if f.Mode == 0 {
			r.Files[i].Mode = 0o644
		}
	}
	if i := slices.IndexFunc(r.Env, func(kv string) bool {
		return strings.Index(kv, "=") < 1 || strings.ContainsRune(kv, 0)
	}); i >= 0 {
		return r, fmt.Errorf("%q in \"env\" is not KEY=value", r.Env[i])
	}
	if slices.ContainsFunc(r.Run, func(s string) bool { return strings.TrimSpace(s) == "" }) {
		return r, errors.New("the recipe has an empty command")
	}
	return r, nil
}
