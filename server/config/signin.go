package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// SignIn configures how people sign in: with a provider of OpenID Connect.
type SignIn struct {
	// Issuer is the provider's URL. Default: none, people sign in with keys.
	Issuer string `yaml:"issuer"`

	Name            string `yaml:"name"`              // of the provider, on the button. Default: the host of Issuer
	ClientID        string `yaml:"client_id"`         // as the provider knows this server
	ClientSecretEnv string `yaml:"client_secret_env"` // variable with the client's secret. Default: a public client

	// URL is the address at which browsers reach this server. The redirect URI, which the provider must know, is
	// URL/console/sign-in/callback.
	URL string `yaml:"url"`

	Scopes      []string `yaml:"scopes"`       // Default: openid, profile, email
	GroupsClaim string   `yaml:"groups_claim"` // of the ID token. Default: groups

	// Projects maps groups to projects. Who is in none of the groups has no access.
	Projects []SignInProject `yaml:"projects"`

	Session time.Duration `yaml:"session"` // after which a person signs in again. Default: 12h
}

// A SignInProject gives the members of a group access.
type SignInProject struct {
	Group   string `yaml:"group"`   // "*" is everyone who signs in
	Project string `yaml:"project"` // id of a project; none for auditor and admin

	// Role is viewer, runner, approver or maintainer in the project, or auditor or admin of the organization. Default:
	// maintainer, also written member.
	Role berth.Role `yaml:"role"`
}

// roleMember is another name of berth.RoleMaintainer.
const roleMember berth.Role = "member"

// Granted returns the role that the entry gives.
func (p SignInProject) Granted() berth.Role {
	if p.Role == "" || p.Role == roleMember {
		return berth.RoleMaintainer
	}
	return p.Role
}

// organization reports whether the role is one of the organization.
func (p SignInProject) organization() bool { return slices.Contains(berth.OrganizationRoles, p.Role) }

// roles returns the values of sign_in.projects.role.
func roles() []string {
	all := []string{string(roleMember)}
	for _, r := range slices.Concat(berth.ProjectRoles, berth.OrganizationRoles) {
		all = append(all, string(r))
	}
	return all
}

// Enabled reports whether people can sign in.
func (c SignIn) Enabled() bool { return c.Issuer != "" }

// Title returns the name of the provider.
func (c SignIn) Title() string {
	if c.Name != "" {
		return c.Name
	}
	u, err := url.Parse(c.Issuer)
	if err != nil {
		return c.Issuer
	}
	return u.Hostname()
}

// Secret returns the client's secret, or "" for a public client.
func (c SignIn) Secret() (string, error) {
	if c.ClientSecretEnv == "" {
		return "", nil
	}
	secret := strings.TrimSpace(os.Getenv(c.ClientSecretEnv))
	if secret == "" {
		return "", fmt.Errorf("sign_in.client_secret_env: %s is not set in the environment", c.ClientSecretEnv)
	}
	return secret, nil
}

// checkSignIn checks what the rules of single keys cannot.
func (c *Config) checkSignIn() error {
	s := c.SignIn
	if !s.Enabled() {
		for key, set := range map[string]bool{"client_id": s.ClientID != "",
			"client_secret_env": s.ClientSecretEnv != "", "url": s.URL != "", "projects": len(s.Projects) > 0} {
			if set {
				return fmt.Errorf("sign_in.%s: it has no effect without sign_in.issuer, the provider's URL", key)
			}
		}
		return nil
	}
	var wrong []error
	fail := func(key, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("sign_in.%s: "+format, append([]any{key}, args...)...))
	}
	for _, one := range []struct{ key, url string }{{"issuer", s.Issuer}, {"url", s.URL}} {
		if problem := browserURLProblem(one.url); problem != "" {
			fail(one.key, "%q %s", one.url, problem)
		}
	}
	if u, err := url.Parse(s.URL); err == nil && u.Path != "" && u.Path != "/" {
		fail("url", "%q must have no path", s.URL)
	}
	if s.ClientID == "" {
		fail("client_id", "it is missing: the id that the provider has given to this server")
	}
	if !slices.Contains(s.Scopes, "openid") {
		fail("scopes", "openid must be one of them")
	}
	if s.GroupsClaim == "" {
		fail("groups_claim", "it must not be empty")
	}
	if !c.Console {
		wrong = append(wrong, errors.New("console: people sign in at the console, so it must be served with sign_in"))
	}
	if len(s.Projects) == 0 {
		fail("projects", "it is missing: without a group that has access, nobody can sign in; "+
			"write [{group: engineers, project: proj_default}]")
	}
	for i, p := range s.Projects {
		at := fmt.Sprintf("projects[%d]", i)
		switch {
		case p.Group == "":
			fail(at+".group", `it is missing: name a group, or "*" for everyone who signs in`)
		case p.organization() && p.Project != "":
			fail(at+".project", "an "+string(p.Role)+" belongs to no project; leave it out, or add another entry for the project")
		case !p.organization() && berth.ProjectID(p.Project).Valid() != nil:
			fail(at+".project", "%q is no id of a project, such as %s", p.Project, berth.DefaultProject)
		}
	}
	return errors.Join(wrong...)
}

// browserURLProblem returns the problem of an address that browsers open, or "".
func browserURLProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "is not a URL such as https://login.example.com"
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "must have no user, query or fragment"
	case u.Scheme == "http" && !IsLoopback(u.Hostname()+":80") && u.Hostname() != "::1":
		return "must begin with https://: tokens would cross the network as they are"
	}
	return ""
}
