package image

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Contents are the programs of a template that a model should know. Programs and Python
// packages are those of fixed lists, so that an image cannot word them; the names of kernels
// have letters and digits.
type Contents struct {
	Programs []string `json:"programs,omitempty"` // in the order of programs
	Python   []string `json:"python,omitempty"`   // packages, in the order of pythonPackages
	Kernels  []string `json:"kernels,omitempty"`  // of Jupyter, sorted
}

// programs are the programs that are looked for, by their names in the file system, and the
// names under which they are listed.
var programs = []struct{ file, name string }{
	{"bash", "bash"}, {"sudo", "sudo"},
	{"python3", "Python"}, {"node", "Node.js"}, {"deno", "Deno"}, {"bun", "Bun"}, {"Rscript", "R"}, {"julia", "Julia"},
	{"go", "Go"},
	{"javac", "Java"}, {"ruby", "Ruby"}, {"php", "PHP"}, {"perl", "Perl"}, {"lua", "Lua"}, {"dotnet", ".NET"},
	{"gcc", "C"}, {"g++", "C++"}, {"rustc", "Rust"},
	{"pip3", "pip"}, {"uv", "uv"}, {"npm", "npm"}, {"cargo", "cargo"}, {"make", "make"}, {"cmake", "CMake"},
	{"git", "git"}, {"gh", "gh"}, {"jq", "jq"}, {"sqlite3", "sqlite3"}, {"psql", "psql"}, {"curl", "curl"},
	{"wget", "wget"}, {"rg", "ripgrep"},
	{"bc", "bc"}, {"zip", "zip"}, {"unzip", "unzip"}, {"7z", "7-Zip"}, {"nano", "nano"}, {"vim", "Vim"},
	{"soffice", "LibreOffice"}, {"pandoc", "pandoc"}, {"pdftotext", "poppler-utils"}, {"qpdf", "qpdf"},
	{"gs", "Ghostscript"}, {"tesseract", "Tesseract"},
	{"dot", "Graphviz"}, {"convert", "ImageMagick"}, {"magick", "ImageMagick"}, {"rsvg-convert", "rsvg-convert"},
	{"ffmpeg", "FFmpeg"},
	{"chromium", "Chromium"}, {"xdotool", "xdotool"}, {"busybox", "BusyBox"},
}

// pythonPackages are the Python packages that are looked for, by their normalized names.
var pythonPackages = []string{
	"pandas", "polars", "numpy", "scipy", "sympy", "matplotlib", "seaborn", "plotly", "statsmodels", "scikit-learn",
	"networkx", "torch", "tensorflow", "transformers",
	"pyarrow", "duckdb", "sqlalchemy", "requests", "httpx", "beautifulsoup4", "lxml", "pyyaml", "openpyxl",
	"xlsxwriter", "python-docx", "python-pptx",
	"pypdf", "pdfplumber", "reportlab", "pillow", "opencv-python", "pytesseract", "tabulate", "jinja2", "markdown",
	"pytest", "flask", "fastapi", "django",
}

// Bounds on the search.
const (
	maxPath    = 16    // directories of programs
	maxEntries = 10000 // of a directory
	maxKernels = 8
)

// kernelPattern matches the names of kernels that are listed.
var kernelPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,23}$`)

// FindContents lists the programs of the template. It does not run its programs.
func (t Template) FindContents() (Contents, error) {
	root, err := openRoot(t.Rootfs)
	if err != nil {
		return Contents{}, err
	}
	defer root.Close()
	return contents(root, t.Config), nil
}

// contents lists the programs of a root file system. An unreadable one counts as missing.
func contents(root rootDir, config Config) Contents {
	c := Contents{Kernels: root.kernels()}
	dirs := programDirs(config)
	for _, p := range programs {
		found := slices.ContainsFunc(dirs, func(dir string) bool { return root.runs(path.Join(dir, p.file)) })
		if found && !slices.Contains(c.Programs, p.name) {
			c.Programs = append(c.Programs, p.name)
		}
	}
	have := map[string]bool{}
	for _, dir := range root.pythonDirs() {
		for _, entry := range root.entries(dir) {
			if name, ok := distribution(entry); ok {
				have[name] = true
			}
		}
	}
	for _, name := range pythonPackages {
		if have[name] {
			c.Python = append(c.Python, name)
		}
	}
	return c
}

// programDirs returns the directories of programs: those of the image's PATH and the usual
// ones.
func programDirs(config Config) []string {
	dirs := []string{"usr/local/bin", "usr/bin", "bin"}
	for _, v := range config.Env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			if dir = strings.TrimPrefix(path.Clean(dir), "/"); path.IsAbs("/"+dir) && dir != "" &&
				len(dirs) < maxPath && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// pythonDirs returns the directories of Python's packages.
func (r rootDir) pythonDirs() []string {
	dirs := []string{"usr/lib/python3/dist-packages"}
	for _, lib := range []string{"usr/local/lib", "usr/lib", "opt/venv/lib", "opt/conda/lib"} {
		for _, entry := range r.entries(lib) {
			if strings.HasPrefix(entry, "python3") && len(dirs) < maxPath {
				dirs = append(dirs, path.Join(lib, entry, "dist-packages"), path.Join(lib, entry, "site-packages"))
			}
		}
	}
	return dirs
}

// kernels returns the names of Jupyter's kernels.
func (r rootDir) kernels() []string {
	var names []string
	for _, dir := range []string{"usr/local/share/jupyter/kernels", "usr/share/jupyter/kernels"} {
		for _, name := range r.entries(dir) {
			if kernelPattern.MatchString(name) && !slices.Contains(names, name) &&
				r.isFile(path.Join(dir, name, "kernel.json"), 0) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxKernels)]
}

// separators matches what the names of Python's packages treat alike.
var separators = regexp.MustCompile(`[-_.]+`)

// distribution returns the normalized name of the package that an entry of a directory of
// packages describes: pandas-1.5.3.egg-info.
func distribution(entry string) (string, bool) {
	name, ok := strings.CutSuffix(entry, ".dist-info")
	if !ok {
		name, ok = strings.CutSuffix(entry, ".egg-info")
	}
	name, _, _ = strings.Cut(name, "-")
	return separators.ReplaceAllString(strings.ToLower(name), "-"), ok
}

// entries returns the sorted names of a directory, up to maxEntries of them.
func (r rootDir) entries(name string) []string {
	f, err := r.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxEntries)
	slices.Sort(names)
	return names
}

// runs reports whether a path is a program.
func (r rootDir) runs(name string) bool { return r.isFile(name, 0o111) }

// isFile reports whether a path is a regular file with any of these permissions; 0 needs none.
func (r rootDir) isFile(name string, mode fs.FileMode) bool {
	f, err := r.open(name, unix.O_PATH)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular() && (mode == 0 || info.Mode()&mode != 0)
}
