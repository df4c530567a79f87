package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model/balance"
	"github.com/berth-run/berth/model/upstream"
)

// UpstreamConfig configures a model server.
type UpstreamConfig struct {
	// its API: openai, chat, anthropic or gemini. Default: openai for api.openai.com, else chat
	Provider string `yaml:"provider"`
	// such as http://localhost:8000/v1. Default: the vendor's; required for chat
	BaseURL    string            `yaml:"base_url"`
	APIKey     string            `yaml:"api_key"`      // or:
	APIKeyEnv  string            `yaml:"api_key_env"`  // name of the environment variable with the key, or:
	APIKeyEnvs []string          `yaml:"api_key_envs"` // several keys of one account, which share the load, or:
	APIKeyFile string            `yaml:"api_key_file"` // path of a file with the key
	Headers    map[string]string `yaml:"headers"`      // sent with each request
	// address of an HTTP or SOCKS5 proxy, or none. Default: from the environment
	Proxy    string         `yaml:"proxy"`
	TLS      TLSConfig      `yaml:"tls"`
	Timeouts TimeoutsConfig `yaml:"timeouts"`
	Limits   UpstreamLimits `yaml:"limits"`
	Breaker  BreakerConfig  `yaml:"breaker"`

	// Prices are the upstream's prices for a million tokens, by its model names or patterns.
	// Default: unknown; then no cost is shown.
	Prices map[string]PriceConfig `yaml:"prices"`

	// Settings of the provider's dialect; see the provider's Options.
	SystemRole string `yaml:"system_role"` // chat: system (the default) or developer
	// chat: max_tokens or max_completion_tokens. Default: by the upstream
	MaxTokens string `yaml:"max_tokens"`
	// chat: the field that accepts reasoning in input, reasoning_content (DeepSeek) or reasoning; openai: encrypted
	// (the default) or all
	Reasoning string `yaml:"reasoning"`
	// openai and chat: native or function. Default: native for OpenAI's own server
	CustomTools string `yaml:"custom_tools"`
	// openai: hosted tools that the upstream runs itself, of image_generation, computer and computer_use_preview.
	// Default: those of OpenAI's models for OpenAI's own server; anthropic: tools that models get in Anthropic's form,
	// of shell, code_interpreter and computer. Default: all for Claude
	NativeTools *[]string `yaml:"native_tools"`
	// chat: maximum length of call ids. Default: 40; Mistral requires 9
	CallIDLength    int `yaml:"call_id_length"`
	MaxOutputTokens int `yaml:"max_output_tokens"` // anthropic: limit for requests without one. Default: the model's
	// anthropic: budget or adaptive; gemini: budget or level. Default: by the model
	Thinking string `yaml:"thinking"`
	// anthropic: how to enforce a JSON schema, format or tool. Default: by the model
	Structured string `yaml:"structured"`
	Cache      string `yaml:"cache"` // anthropic: how long the context is cached, 5m (the default), 1h or off
}

// TLSConfig configures the verification of an upstream's certificate, and Berth's own
// certificate. The files are PEM.
type TLSConfig struct {
	CAFile   string `yaml:"ca_file"`   // trusted authorities, instead of this machine's
	CertFile string `yaml:"cert_file"` // Berth's own certificate, with:
	KeyFile  string `yaml:"key_file"`
	Insecure bool   `yaml:"insecure"` // accepts any certificate; only for an upstream on this machine
}

// TimeoutsConfig limits the wait for an upstream.
type TimeoutsConfig struct {
	Connect    time.Duration `yaml:"connect"`     // to connect. Default: 10s
	FirstToken time.Duration `yaml:"first_token"` // silence before the first token. Default: 10m
	Silence    time.Duration `yaml:"silence"`     // silence after the first token. Default: 10m
}

// UpstreamLimits limits the use of an upstream. Default: no limits.
type UpstreamLimits struct {
	Concurrency       int           `yaml:"concurrency"` // concurrent turns
	RequestsPerMinute int           `yaml:"requests_per_minute"`
	TokensPerMinute   int           `yaml:"tokens_per_minute"` // input and output
	Wait              time.Duration `yaml:"wait"`              // how long a turn may wait for the limits. Default: 10s
}

// BreakerConfig defines when a failing upstream is skipped for a while.
type BreakerConfig struct {
	Failures int           `yaml:"failures"` // consecutive failures. Default: 5
	Share    float64       `yaml:"share"`    // share of failed turns in the last minute. Default: 0.5
	Open     time.Duration `yaml:"open"`     // time until one turn is tried. Default: 10s
}

// PriceConfig is the price of a million tokens of a model.
type PriceConfig struct {
	Input       Price  `yaml:"input"`
	CachedInput *Price `yaml:"cached_input"` // Default: Input
	CacheWrite  *Price `yaml:"cache_write"`  // Default: Input
	Output      Price  `yaml:"output"`
}

// A Price is an amount in the configuration's currency.
type Price berth.Amount

// UnmarshalYAML parses 1.25.
func (p *Price) UnmarshalYAML(n *yaml.Node) error {
	a, err := berth.ParseAmount(n.Value)
	if err != nil || a < 0 {
		return fmt.Errorf("%q is not a price such as 1.25", n.Value)
	}
	*p = Price(a)
	return nil
}

// TargetConfig refers to an upstream of a model.
type TargetConfig struct {
	Name   string `yaml:"name"`   // of an entry in Upstreams
	Model  string `yaml:"model"`  // the upstream's name for the model. Default: the same
	Weight int    `yaml:"weight"` // share of the turns. Default: 1
}

// upstreamName matches an upstream's name.
var upstreamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// check validates an upstream. Its error continues the upstream's key.
func (u *UpstreamConfig) check() error {
	kind := providers[u.provider()]
	for _, key := range u.dialect() {
		if !slices.Contains(kind.keys, key) {
			return fmt.Errorf(".%s is not supported by provider %s", key, u.provider())
		}
	}
	if u.TLS.Insecure && !u.local() {
		return errors.New(
			".tls.insecure is allowed only for a server on this machine; set ca_file to its certificate authority instead")
	}
	if (u.TLS.CertFile == "") != (u.TLS.KeyFile == "") {
		return errors.New(".tls needs both cert_file and key_file")
	}
	if _, err := u.proxy(); err != nil {
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

func (u *UpstreamConfig) checkKeys() error {
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
func (u *UpstreamConfig) local() bool {
	base, err := url.Parse(u.BaseURL)
	return err == nil && isLoopback(net.JoinHostPort(base.Hostname(), "0"))
}

// provider returns the name of the provider. The default is openai for api.openai.com, and chat
// for all others.
func (u *UpstreamConfig) provider() string {
	if u.Provider != "" {
		return u.Provider
	}
	if base, err := url.Parse(u.BaseURL); err == nil && base.Hostname() == "api.openai.com" {
		return providerOpenAI
	}
	return providerChat
}

// proxy returns the address of the proxy, or nil to use the environment's. An empty URL means no
// proxy.
func (u *UpstreamConfig) proxy() (*url.URL, error) {
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

// options returns the options of all providers, without the key.
func (u *UpstreamConfig) options(name string, log *slog.Logger) (upstream.Options, error) {
	proxy, err := u.proxy()
	if err != nil {
		return upstream.Options{}, err
	}
	conf, err := u.TLS.config()
	return upstream.Options{Name: name, BaseURL: u.BaseURL, Headers: u.Headers, Log: log, Proxy: proxy, TLS: conf,
		Connect: u.Timeouts.Connect, FirstToken: u.Timeouts.FirstToken, Silence: u.Timeouts.Silence}, err
}

// config reads the files and returns the TLS configuration, or nil for the default.
func (t TLSConfig) config() (*tls.Config, error) {
	if t == (TLSConfig{}) {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.Insecure}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf(".tls.ca_file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf(".tls.ca_file: %s contains no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf(".tls.cert_file: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// A secret is a key of an upstream with its name.
type secret struct{ name, value string }

// secrets returns the keys of the upstream. It returns an error if the environment variable or the
// file of a key is missing.
func (u *UpstreamConfig) secrets() ([]secret, error) {
	if u.APIKeyFile != "" {
		text, err := os.ReadFile(u.APIKeyFile)
		if err != nil {
			return nil, fmt.Errorf(".api_key_file: %w", err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, fmt.Errorf(".api_key_file: %s is empty", u.APIKeyFile)
		}
		return []secret{{u.APIKeyFile, string(bytes.TrimSpace(text))}}, nil
	}
	key, names := "api_key_envs", u.APIKeyEnvs
	if u.APIKeyEnv != "" {
		key, names = "api_key_env", []string{u.APIKeyEnv}
	}
	if len(names) == 0 {
		return []secret{{"api_key", u.APIKey}}, nil
	}
	var all []secret
	for _, name := range names {
		value := strings.TrimSpace(os.Getenv(name))
		if value == "" {
			return nil, fmt.Errorf(".%s: %s is not set in the environment", key, name)
		}
		all = append(all, secret{name, value})
	}
	return all, nil
}

// open creates the upstream. An anonymous upstream belongs to one model and has no name of its
// own. The error continues the upstream's key.
func (u *UpstreamConfig) open(name string, anonymous bool, currency string, firstToken func(upstream, model string,
	took time.Duration), log *slog.Logger) (*balance.Upstream, error) {
	shown := name
	if anonymous { // name is a pattern of models
		shown = u.provider()
	}
	options, err := u.options(shown, log.With("upstream", name))
	if err != nil {
		return nil, err
	}
	secrets, err := u.secrets()
	if err != nil {
		return nil, err
	}
	var keys []balance.Key
	for _, s := range secrets {
		options.APIKey = s.value
		p, err := providers[u.provider()].make(u, options)
		if err != nil {
			return nil, fmt.Errorf(": %w", err)
		}
		keys = append(keys, balance.Key{Name: s.name, Provider: p})
	}
	opened, err := balance.NewUpstream(balance.UpstreamOptions{Name: name, Anonymous: anonymous, Keys: keys, Log: log,
		FirstToken: firstToken,
		Limits:     balance.Limits(u.Limits),
		Breaker:    balance.Breaker(u.Breaker),
		Prices:     balance.Prices{Currency: currency, Models: u.prices()}})
	if err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	return opened, nil
}

func (u *UpstreamConfig) prices() map[string]balance.Price {
	all := map[string]balance.Price{}
	for name, p := range u.Prices {
		all[name] = balance.Price{Input: berth.Amount(p.Input), CachedInput: (*berth.Amount)(p.CachedInput),
			CacheWrite: (*berth.Amount)(p.CacheWrite), Output: berth.Amount(p.Output)}
	}
	return all
}
