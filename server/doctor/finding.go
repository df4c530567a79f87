package doctor

import (
	"os"
	"path/filepath"
)

// A Finding is the result of one check.
type Finding struct {
	What   string `json:"what"`
	OK     bool   `json:"ok"`
	Detail string `json:"says"`
	Advice string `json:"advice,omitempty"` // what to do, or what does not work

	// Models is whether it concerns models only: containers start without it.
	Models bool `json:"models,omitempty"`

	// Fix are the arguments of the berth command that makes it right. Nil means that there is none.
	Fix []string `json:"fix,omitempty"`
}

// scratch creates a temporary directory, in the state directory if possible, because the result
// of a trial may depend on the file system.
func scratch(state string) (string, error) {
	if dir, err := os.MkdirTemp(state, "doctor-*"); state != "" && err == nil {
		return filepath.Abs(dir)
	}
	return os.MkdirTemp("", "berth-doctor-*")
}
