package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// EndUsers configures the end users of projects.
type EndUsers struct {
	Enabled bool `yaml:"enabled"` // for projects that do not set it themselves. Default: false

	// User and Chat are where requests name users and chats; the first with a value counts: header:NAME, metadata:KEY,
	// safety_identifier, user, prompt_cache_key
	User []string `yaml:"user"`
	Chat []string `yaml:"chat"`

	// Computer is the container of a request that names no container: none, a new one (the default); chat, that of
	// the chat; user, that of the user
	Computer string        `yaml:"computer"`
	Idle     time.Duration `yaml:"idle"` // of these containers, then they become snapshots. Default: containers.idle

	Containers   *int64 `yaml:"containers"`     // of a user that may run at a time. Default: no limit
	CostPerMonth *Money `yaml:"cost_per_month"` // of a user's models in a calendar month. Default: no limit
}

// headerName matches the names of headers.
var headerName = regexp.MustCompile("^[A-Za-z0-9_-]{1,128}$")

// check checks the sources.
func (e EndUsers) check() error {
	var wrong []error
	for key, sources := range map[string][]string{"user": e.User, "chat": e.Chat} {
		for _, source := range sources {
			kind, name, named := strings.Cut(source, ":")
			switch {
			case named && kind == "metadata" && name != "":
			case named && kind == "header" && headerName.MatchString(name) && !secretHeader(name):
			case !named && slices.Contains([]string{"safety_identifier", "user", "prompt_cache_key"}, source):
			default:
				wrong = append(wrong, fmt.Errorf("end_users.%s: %q is not header:NAME, metadata:KEY, safety_identifier, "+
					"user or prompt_cache_key", key, source))
			}
		}
	}
	return errors.Join(wrong...)
}

// secretHeader reports whether a header has a secret, which must not name a user.
func secretHeader(name string) bool {
	return slices.ContainsFunc([]string{"Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"},
		func(secret string) bool { return strings.EqualFold(secret, name) })
}
