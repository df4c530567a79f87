package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programName is guest.Program.
const programName = "berth-guest"

// lookPath finds a program in the PATH of an environment, or in the guest's own. The guest itself is in no PATH.
func lookPath(name string, env []string) (string, error) {
	if name == programName {
		return os.Readlink("/proc/self/exe")
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	for i := len(env) - 1; i >= 0; i-- {
		list, ok := strings.CutPrefix(env[i], "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if !filepath.IsAbs(dir) { // it would be relative to the guest's directory
				continue
			}
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
		break
	}
	return exec.LookPath(name)
}
