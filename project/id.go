package project

import (
	"fmt"
	"regexp"

	"github.com/berth-run/berth"
)

// idPattern matches the ids of projects.
var idPattern = regexp.MustCompile(`^proj_[A-Za-z0-9_-]{1,60}$`)

// ParseID checks the id of a project. what names the id in the error.
func ParseID(what, id string) (berth.ProjectID, error) {
	if !idPattern.MatchString(id) {
		return "", fmt.Errorf("%s %q must match %s", what, id, idPattern)
	}
	return berth.ProjectID(id), nil
}

// ValidID reports whether id is a valid id of a project.
func ValidID(id string) bool { return idPattern.MatchString(id) }
