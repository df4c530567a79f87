package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"go.yaml.in/yaml/v3"
)

// Upstream configures a model server.
type Upstream struct {
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
	TLS      UpstreamTLS    `yaml:"tls"`
	Timeouts Timeouts       `yaml:"timeouts"`
	Limits   UpstreamLimits `yaml:"limits"`
	Breaker  Breaker        `yaml:"breaker"`

	// Prices are the upstream's prices for a million tokens, by its model names or patterns.
	// Default: unknown; then no cost is shown.
	Prices map[string]Prices `yaml:"prices"`

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

// UpstreamTLS configures the verification of an upstream's certificate, and Berth's own
// certificate. The files are PEM.
type UpstreamTLS struct {
	CAFile   string `yaml:"ca_file"`   // trusted authorities, instead of this machine's
	CertFile string `yaml:"cert_file"` // Berth's own certificate, with:
	KeyFile  string `yaml:"key_file"`
	Insecure bool   `yaml:"insecure"` // accepts any certificate; only for an upstream on this machine
}

// Timeouts limits the wait for an upstream.
type Timeouts struct {
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

// Breaker defines when a failing upstream is skipped for a while.
type Breaker struct {
	Failures int           `yaml:"failures"` // consecutive failures. Default: 5
	Share    float64       `yaml:"share"`    // share of failed turns in the last minute. Default: 0.5
	Open     time.Duration `yaml:"open"`     // time until one turn is tried. Default: 10s
}

// Prices is the price of a million tokens of a model.
type Prices struct {
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

// Target refers to an upstream of a model.
type Target struct {
	Name   string `yaml:"name"`   // of an entry in Upstreams
	Model  string `yaml:"model"`  // the upstream's name for the model. Default: the same
	Weight int    `yaml:"weight"` // share of the turns. Default: 1
}

// Model routes models to named upstreams, or to one described inline.
type Model struct {
	Match string `yaml:"match"` // a name or a pattern: qwen3-32b, gpt-*, *

	Upstreams []Target `yaml:"upstreams"` // share the turns by weight
	Fallbacks []Target `yaml:"fallbacks"` // tried in this order when all upstreams fail
	// wait for the first token before also trying another upstream. Default: never
	HedgeAfter time.Duration `yaml:"hedge_after"`

	// ContextWindow is the model's limit on input and output tokens together. With it,
	// truncation "auto" drops old items before a turn. Default: unknown; then the
	// upstream's error reveals that the input is too long.
	ContextWindow int `yaml:"context_window"`

	// For GET /v1/models, which also shows the window. Default: nothing.
	Modalities []string `yaml:"modalities"` // input: text, image, file, audio
	Tools      *bool    `yaml:"tools"`      // whether it can call tools

	// Inline upstream, if Upstreams is empty:
	Upstream      `yaml:",inline"`
	UpstreamModel string        `yaml:"upstream"`    // the upstream's name for the model. Default: the same
	FirstToken    time.Duration `yaml:"first_token"` // as in timeouts
	Silence       time.Duration `yaml:"silence"`     // as in timeouts
}

// Inline returns the entry's inline upstream.
func (m *Model) Inline() *Upstream {
	own := m.Upstream
	own.Timeouts.FirstToken = cmp.Or(m.FirstToken, own.Timeouts.FirstToken)
	own.Timeouts.Silence = cmp.Or(m.Silence, own.Timeouts.Silence)
	return &own
}
