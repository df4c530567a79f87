package project

import (
	"fmt"

	"github.com/berth-run/berth"
)

// ParseID checks the id of a project. what names the id in the error.
func ParseID(what, id string) (berth.ProjectID, error) {
	p := berth.ProjectID(id)
	if err := p.Valid(); err != nil {
		return "", fmt.Errorf("%s %w", what, err)
	}
	return p, nil
}
