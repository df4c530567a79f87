package build

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// A Request says how a template is built.
type Request struct {
	FromImage    string `json:"fromImage"`
	FromTemplate string `json:"fromTemplate"`
	Registry     *struct {
		Type     string `json:"type"` // registry, aws or gcp
		Username string `json:"username"`
		Password string `json:"password"`
		Account  string `json:"serviceAccountJson"`
	} `json:"fromImageRegistry"`
	Force    bool   `json:"force"`
	Steps    []Step `json:"steps"`
	StartCmd string `json:"startCmd"`
	ReadyCmd string `json:"readyCmd"`
}

// credentials returns the user and the password for the registry of a request.
func (req *Request) credentials() (user, password string, err error) {
	switch reg := req.Registry; {
	case reg == nil:
		return "", "", nil
	case reg.Type == "registry":
		return reg.Username, reg.Password, nil
	case reg.Type == "gcp": // a registry of Google takes the key of an account as a password
		return "_json_key", reg.Account, nil
	default:
		return "", "", berth.Invalid("fromImageRegistry.type",
			"This server cannot use credentials of type '%s'. Use a user and a password, such as those of 'aws ecr get-login-password'.",
			rule.Clip(reg.Type))
	}
}

// Check checks a request.
func (req *Request) Check() error {
	if (req.FromImage == "") == (req.FromTemplate == "") {
		return berth.Invalid("fromImage", "Expected either 'fromImage' or 'fromTemplate'.")
	}
	if _, _, err := req.credentials(); err != nil {
		return err
	}
	for i, s := range req.Steps {
		if err := s.check(fmt.Sprintf("steps[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// hash returns a key for the state of a build after a step: what it was before, and the step.
func hash(before string, s Step) string {
	text, _ := json.Marshal([]any{before, strings.ToUpper(s.Type), s.Args, s.FilesHash}) // strings always marshal
	return string(cacheKey("step", string(text)).ID)
}
