package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
)

// upstreamName matches an upstream's name.
var upstreamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// check validates an upstream. Its error continues the upstream's key.
func (u *Upstream) check() error {
	keys := Dialects[u.ProviderName()]
	for _, key := range u.dialect() {
		if !slices.Contains(keys, key) {
			return fmt.Errorf(".%s is not supported by provider %s", key, u.ProviderName())
		}
	}
	if u.TLS.Insecure && !u.local() {
		return errors.New(
			".tls.insecure is allowed only for a server on this machine; set ca_file to its certificate authority instead")
	}
	if (u.TLS.CertFile == "") != (u.TLS.KeyFile == "") {
		return errors.New(".tls needs both cert_file and key_file")
	}
	if _, err := u.ProxyURL(); err != nil {
		return err
	}
	if err := u.checkKeys(); err != nil {
		return err
	}
	if base, err := url.Parse(u.BaseURL); u.BaseURL != "" && (err != nil || base.Host == "" || base.Scheme != "http" &&
		base.Scheme != "https") {
		// omits the value, which may contain a password
		return errors.New(".base_url must be an http or https address, such as http://localhost:8000/v1")
	}
	return nil
}

func (u *Upstream) checkKeys() error {
	if u.APIKey != "" && u.APIKeyEnv != "" {
		return errors.New(" has both api_key and api_key_env")
	}
	if u.APIKeyFile != "" && (u.APIKey != "" || u.APIKeyEnv != "" || len(u.APIKeyEnvs) > 0) {
		return errors.New(" has both api_key_file and another key")
	}
	if len(u.APIKeyEnvs) > 0 && (u.APIKey != "" || u.APIKeyEnv != "") {
		return errors.New(" has both api_key_envs and another key")
	}
	for i, name := range u.APIKeyEnvs {
		if name == "" || slices.Contains(u.APIKeyEnvs[:i], name) {
			return fmt.Errorf(".api_key_envs: %q is empty or a duplicate", name)
		}
	}
	return nil
}

// local reports whether the upstream is on this machine.
func (u *Upstream) local() bool {
	base, err := url.Parse(u.BaseURL)
	return err == nil && IsLoopback(net.JoinHostPort(base.Hostname(), "0"))
}

// ProviderName returns the name of the provider. The default is openai for api.openai.com, and chat
// for all others.
func (u *Upstream) ProviderName() string {
	if u.Provider != "" {
		return u.Provider
	}
	if base, err := url.Parse(u.BaseURL); err == nil && base.Hostname() == "api.openai.com" {
		return ProviderOpenAI
	}
	return ProviderChat
}

// ProxyURL returns the address of the proxy, or nil to use the environment's. An empty URL means no
// proxy.
func (u *Upstream) ProxyURL() (*url.URL, error) {
	switch u.Proxy {
	case "":
		return nil, nil
	case "none":
		return &url.URL{}, nil
	}
	p, err := url.Parse(u.Proxy)
	if err != nil || p.Host == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, p.Scheme) {
		return nil, errors.New(".proxy must be none or the address of an http, https or socks5 proxy")
	}
	return p, nil
}

// The names of providers in the configuration.
const (
	ProviderOpenAI    = "openai"
	ProviderChat      = "chat"
	ProviderAnthropic = "anthropic"
	ProviderGemini    = "gemini"
)

// Dialects are the providers, with the keys of the dialect that the configuration of such an upstream may have.
var Dialects = map[string][]string{
	ProviderOpenAI:    {"reasoning", "custom_tools", "native_tools"},
	ProviderChat:      {"system_role", "max_tokens", "reasoning", "call_id_length", "custom_tools"},
	ProviderAnthropic: {"native_tools", "max_output_tokens", "thinking", "structured", "cache"},
	ProviderGemini:    {"thinking"},
}

// dialect returns the dialect's keys that are set.
func (m *Upstream) dialect() (keys []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"system_role", m.SystemRole != ""}, {"max_tokens", m.MaxTokens != ""}, {"reasoning", m.Reasoning != ""},
		{"call_id_length", m.CallIDLength != 0}, {"custom_tools", m.CustomTools != ""},
		{"native_tools", m.NativeTools != nil},
		{"max_output_tokens", m.MaxOutputTokens != 0}, {"thinking", m.Thinking != ""},
		{"structured", m.Structured != ""}, {"cache", m.Cache != ""},
	} {
		if k.set {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// A Secret is a key of an upstream with its name.
type Secret struct{ Name, Value string }

// Secrets returns the keys of the upstream. It returns an error if the environment variable or the
// file of a key is missing.
func (u *Upstream) Secrets() ([]Secret, error) {
	if u.APIKeyFile != "" {
		text, err := os.ReadFile(u.APIKeyFile)
		if err != nil {
			return nil, fmt.Errorf(".api_key_file: %w", err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, fmt.Errorf(".api_key_file: %s is empty", u.APIKeyFile)
		}
		return []Secret{{u.APIKeyFile, string(bytes.TrimSpace(text))}}, nil
	}
	key, names := "api_key_envs", u.APIKeyEnvs
	if u.APIKeyEnv != "" {
		key, names = "api_key_env", []string{u.APIKeyEnv}
	}
	if len(names) == 0 {
		return []Secret{{"api_key", u.APIKey}}, nil
	}
	var all []Secret
	for _, name := range names {
		value := strings.TrimSpace(os.Getenv(name))
		if value == "" {
			return nil, fmt.Errorf(".%s: %s is not set in the environment", key, name)
		}
		all = append(all, Secret{name, value})
	}
	return all, nil
}
