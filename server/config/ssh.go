package config

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
)

// SSH configures the listener of SSH. Without an address there is none; berth ssh-proxy needs none.
type SSH struct {
	Listen      string `yaml:"listen"`      // address, such as 0.0.0.0:2222. Default: none
	Connections int    `yaml:"connections"` // of all clients. Default: 256
	PerAddress  int    `yaml:"per_address"` // connections of one source address. Default: 64

	// Authorities sign certificates of users.
	Authorities []SSHAuthority `yaml:"authorities"`
}

// An SSHAuthority is a key that signs certificates of OpenSSH. The principals of a certificate are the projects that it
// is for.
type SSHAuthority struct {
	Key      string   `yaml:"key"`      // the public key: "ssh-ed25519 AAAA…"
	Projects []string `yaml:"projects"` // that its certificates may be for
	Role     string   `yaml:"role"`     // of their users: runner or maintainer. Default: runner
	Revoked  []string `yaml:"revoked"`  // ids of certificates (ssh-keygen -I) that are refused
}

// PublicKey returns the key of the authority.
func (a SSHAuthority) PublicKey() (ssh.PublicKey, error) {
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(a.Key))
	if err != nil || len(options) > 0 {
		return nil, errors.New("expected a public key as OpenSSH writes it, such as 'ssh-ed25519 AAAA…'")
	}
	if _, ok := key.(*ssh.Certificate); ok {
		return nil, errors.New("this is a certificate; expected the public key of the authority")
	}
	return key, nil
}

// check checks the authorities.
func (c SSH) check() error {
	var wrong []error
	for i, a := range c.Authorities {
		at := fmt.Sprintf("ssh.authorities.%d", i)
		if _, err := a.PublicKey(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s.key: %w", at, err))
		}
		if len(a.Projects) == 0 {
			wrong = append(wrong, fmt.Errorf("%s.projects: name the projects that its certificates may be for", at))
		}
		for _, p := range a.Projects {
			if err := berth.ProjectID(p).Valid(); err != nil || p == string(berth.AdminProject) {
				wrong = append(wrong, fmt.Errorf("%s.projects: %q is not a project id", at, p))
			}
		}
		may := []string{"", string(berth.RoleRunner), string(berth.RoleMaintainer)}
		if !slices.Contains(may, a.Role) {
			wrong = append(wrong, fmt.Errorf("%s.role: %q cannot use containers; use runner or maintainer", at, a.Role))
		}
	}
	return errors.Join(wrong...)
}
