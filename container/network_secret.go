package container

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/egress/mint"
	"github.com/berth-run/berth/egress/sign"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// add adds secrets to the network, each with a placeholder. Secrets with the same name share one: each host gets its
// own value in the place of it.
func (n *network) add(secrets []berth.DomainSecret,
	check func(string, berth.DomainSecret) error) error {
	if len(secrets) > maxSecrets {
		return berth.Invalid("network_policy.domain_secrets", "A container has at most %d secrets.", maxSecrets)
	}
	placeholders := map[string]string{}
	for i, s := range secrets {
		at := fmt.Sprintf("network_policy.domain_secrets[%d]", i)
		r, err := egress.ParseRule(s.Domain)
		if err != nil || r.Name == "" || r.Name == "*" || len(r.Ports) > 0 {
			return berth.Invalid(at+".domain", "Invalid domain: expected a name or *.name.")
		}
		if !n.access.policy.Open && !allowsName(n.access.policy, r) {
			return berth.Invalid(at+".domain", "The domain '%s' of a secret is not among 'allowed_domains'.", s.Domain)
		}
		if !variableName.MatchString(s.Name) || strings.HasPrefix(s.Name, "BERTH_") {
			return berth.Invalid(at+".name", "Invalid name: expected the name of an environment variable.")
		}
		if len(s.Value) > maxSecret {
			return berth.Invalid(at+".value", "Invalid value: a secret has at most %d bytes on this server.", maxSecret)
		}
		if err := check(at, s); err != nil {
			return err
		}
		if placeholders[s.Name] == "" {
			placeholders[s.Name] = egress.NewPlaceholder(s.Name)
		}
		same := func(o egress.Secret) bool { return o.Name == s.Name && o.Domain == r.Name }
		if slices.ContainsFunc(n.secrets, same) {
			return berth.Invalid(at+".name", "The domain '%s' has two secrets with the name '%s'.", s.Domain, s.Name)
		}
		secret := secretOf(s)
		secret.Domain, secret.Placeholder = r.Name, placeholders[s.Name]
		n.secrets = append(n.secrets, secret)
	}
	return nil
}

// secretOf returns the secret of a network policy without its placeholder.
func secretOf(s berth.DomainSecret) egress.Secret {
	secret := egress.Secret{Domain: strings.ToLower(s.Domain), Name: s.Name}
	switch s.Type {
	case berth.DomainSecretAWS:
		secret.Sign = &sign.Key{ID: s.AccessKeyID, Secret: s.Value, Session: s.SessionToken, Regions: s.Regions,
			Services: s.Services}
	case berth.DomainSecretOAuth:
		secret.Mint = &mint.Grant{Client: &mint.Client{ID: s.ClientID, Secret: s.Value, URL: s.TokenURL,
			Scopes: s.Scopes, Audience: s.Audience}}
	case berth.DomainSecretGitHub:
		secret.Mint = &mint.Grant{App: &mint.App{ID: s.AppID, Installation: s.InstallationID, Key: s.Value,
			URL: appURL(s), Repositories: s.Repositories, Permissions: s.Permissions}}
	default:
		secret.Value = s.Value
	}
	return secret
}

// sameSecret reports whether a secret of a policy is the same as a secret of a container.
func sameSecret(want berth.DomainSecret, have egress.Secret) bool {
	have.Placeholder, have.Domain = "", strings.ToLower(have.Domain)
	return reflect.DeepEqual(secretOf(want), have)
}

// fieldsOf are the fields that a type of secret may have beside domain, name and value.
var fieldsOf = map[string][]string{
	"": {}, berth.DomainSecretValue: {},
	berth.DomainSecretAWS:    {"access_key_id", "session_token", "regions", "services"},
	berth.DomainSecretOAuth:  {"client_id", "token_url", "scopes", "audience"},
	berth.DomainSecretGitHub: {"app_id", "installation_id", "repositories", "permissions", "api_url"},
}

// checkSecret checks the fields of a secret that its type needs.
func (ns *networks) checkSecret(at string, s berth.DomainSecret) error {
	allowed, known := fieldsOf[s.Type]
	if !known {
		return berth.Invalid(at+".type", "Invalid type: '%s'.", s.Type)
	}
	for field, set := range map[string]bool{"access_key_id": s.AccessKeyID != "", "session_token": s.SessionToken != "",
		"regions": s.Regions != nil, "services": s.Services != nil, "client_id": s.ClientID != "",
		"token_url": s.TokenURL != "", "scopes": s.Scopes != nil, "audience": s.Audience != "", "app_id": s.AppID != "",
		"installation_id": s.InstallationID != "", "repositories": s.Repositories != nil,
		"permissions": s.Permissions != nil, "api_url": s.APIURL != ""} {
		if set && !slices.Contains(allowed, field) {
			return berth.Invalid(at+"."+field, "A secret of the type '%s' has no '%s'.",
				cmp.Or(s.Type, berth.DomainSecretValue), field)
		}
	}
	switch s.Type {
	case berth.DomainSecretAWS:
		return checkKey(at, s)
	case berth.DomainSecretOAuth:
		if s.ClientID == "" {
			return berth.Invalid(at+".client_id", "A secret of the type '%s' needs the id of the client.", s.Type)
		}
		return ns.checkEndpoint(at+".token_url", s.TokenURL)
	case berth.DomainSecretGitHub:
		return ns.checkApp(at, s)
	}
	if len(s.Value) < 4 || strings.ContainsAny(s.Value, "\x00\r\n") {
		// a shorter one would be masked everywhere
		return berth.Invalid(at+".value", "Invalid value: a secret has at least 4 characters, on one line.")
	}
	return nil
}

var (
	keyID     = regexp.MustCompile(`^[!-.0-~]{4,128}$`) // visible, without a slash
	scopeWord = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

// checkKey checks an access key. What it may sign must be listed: whoever receives a signed request could send it to
// another service that trusts the same key.
func checkKey(at string, s berth.DomainSecret) error {
	if !keyID.MatchString(s.AccessKeyID) {
		return berth.Invalid(at+".access_key_id", "Invalid access key id: expected 4 to 128 characters, such as "+
			"'AKIAIOSFODNN7EXAMPLE'.")
	}
	if strings.ContainsAny(s.Value+s.SessionToken, "\x00\r\n ") {
		return berth.Invalid(at+".value", "Invalid value: a secret access key and its session token have no spaces.")
	}
	for _, list := range []struct {
		field string
		words []string
	}{{"regions", s.Regions}, {"services", s.Services}} {
		field, words := list.field, list.words
		if len(words) == 0 {
			return berth.Invalid(at+"."+field, "A secret of the type '%s' lists the %s for which requests are signed.",
				berth.DomainSecretAWS, field)
		}
		for i, w := range words {
			if !scopeWord.MatchString(w) {
				return berth.Invalid(fmt.Sprintf("%s.%s[%d]", at, field, i),
					"Invalid value: '%s'. Expected a word such as 's3' or 'eu-central-1'.", w)
			}
		}
	}
	return nil
}

// setPlaceholders sets the environment variables of secrets. Programs for AWS also want a secret key and a region.
func setPlaceholders(env map[string]string, secrets []egress.Secret) {
	for _, s := range secrets {
		if s.Sign == nil || s.Name != "AWS_ACCESS_KEY_ID" {
			continue
		}
		env["AWS_SECRET_ACCESS_KEY"] = s.Placeholder
		if len(s.Sign.Regions) == 1 {
			env["AWS_REGION"], env["AWS_DEFAULT_REGION"] = s.Sign.Regions[0], s.Sign.Regions[0]
		}
	}
	for _, s := range secrets {
		env[s.Name] = s.Placeholder
	}
}
