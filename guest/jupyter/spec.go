package jupyter

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Spec describes an installed kernel: its kernel.json.
type Spec struct {
	Name          string            `json:"-"`
	Argv          []string          `json:"argv"`
	DisplayName   string            `json:"display_name"`
	Language      string            `json:"language"`
	InterruptMode string            `json:"interrupt_mode"` // "signal", the default, or "message"
	Env           map[string]string `json:"env"`
}

// Dirs returns the directories in which kernels are installed, the preferred ones first.
func Dirs(home string) []string {
	return []string{filepath.Join(home, ".local/share/jupyter/kernels"), "/usr/local/share/jupyter/kernels",
		"/usr/share/jupyter/kernels"}
}

// maxSpec bounds a kernel.json in bytes.
const maxSpec = 64 << 10

// Find returns the kernel with this name. The error names those that there are.
func Find(dirs []string, name string) (Spec, error) {
	for _, dir := range dirs {
		if spec, err := readSpec(filepath.Join(dir, name)); err == nil {
			return spec, nil
		}
	}
	names := Names(dirs)
	if len(names) == 0 {
		return Spec{},
			fmt.Errorf("no Jupyter kernel is installed in this container; install ipykernel, or use a template that has it")
	}
	return Spec{}, fmt.Errorf("no Jupyter kernel %q is installed in this container; there are: %s", name,
		strings.Join(names, ", "))
}

// Names returns the sorted names of the installed kernels.
func Names(dirs []string) []string {
	var names []string
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if _, err := readSpec(filepath.Join(dir, e.Name())); err == nil && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return names
}

func readSpec(dir string) (Spec, error) {
	f, err := os.Open(filepath.Join(dir, "kernel.json"))
	if err != nil {
		return Spec{}, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return Spec{}, fmt.Errorf("%s is not a file", f.Name())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSpec))
	if err != nil {
		return Spec{}, err
	}
	spec := Spec{Name: filepath.Base(dir)}
	if err := json.Unmarshal(text, &spec); err != nil {
		return Spec{}, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if len(spec.Argv) == 0 {
		return Spec{}, fmt.Errorf("%s has no argv", f.Name())
	}
	return spec, nil
}

// Command returns the kernel's command line. dir is the directory of its package, where
// the template of a path may refer to it.
func (s Spec) Command(connectionFile string) []string {
	argv := make([]string, len(s.Argv))
	for i, a := range s.Argv {
		argv[i] = strings.NewReplacer("{connection_file}", connectionFile).Replace(a)
	}
	return argv
}
