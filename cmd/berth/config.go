package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
)

// Config is what a server can be told, in YAML. Every field is optional; a key
// that is not listed here is an error.
type Config struct {
	// Driver isolates containers: "gvisor" (the default; needs root), or
	// "unsafe-local", which runs commands on this machine without any isolation
	// and is for development only.
	Driver string `yaml:"driver"`

	// Template is the name or digest of what containers start from. Default: base.
	Template string `yaml:"template"`

	Containers ContainersConfig `yaml:"containers"`
	Shell      ShellConfig      `yaml:"shell"`
	Store      StoreConfig      `yaml:"store"`

	// Limits are what projects may use, by id; those of "default" are for all that
	// do not say otherwise. berth project limit gives a project others without a
	// restart.
	Limits map[string]LimitsConfig `yaml:"limits"`

	// Models routes model names to upstreams: the first entry whose pattern fits.
	// Default: what the vendors' environment variables say, see environmentModels. The
	// name "scripted", a recital for demos and tests, is always there.
	Models []ModelConfig `yaml:"models"`
}

// ContainersConfig bounds containers.
type ContainersConfig struct {
	CPU     float64       `yaml:"cpu"`      // cores of each. Default: 2
	PIDs    int           `yaml:"pids"`     // processes and threads of each. Default: 512
	Disk    Bytes         `yaml:"disk"`     // what each may write, such as 10g. Default: 10g
	Idle    time.Duration `yaml:"idle"`     // life without use, unless a container asks otherwise. Default: 20m
	MaxIdle time.Duration `yaml:"max_idle"` // the most that one may ask for. Default: 168h
	Pool    int           `yaml:"pool"`     // sandboxes of the smallest size that are held ready. Default: 2
	Network NetworkConfig `yaml:"network"`
}

// ShellConfig bounds shell calls.
type ShellConfig struct {
	Timeout    time.Duration `yaml:"timeout"`     // of a command that names none. Default: 10m
	MaxTimeout time.Duration `yaml:"max_timeout"` // the most that one may name. Default: 1h
	Output     int           `yaml:"output"`      // characters of a command's output that the model sees. Default: 32768
}

// StoreConfig tunes the database.
type StoreConfig struct {
	// Synchronous is "normal" (the default; nothing is lost when the process dies)
	// or "full" (nor when the power does; slower).
	Synchronous string `yaml:"synchronous"`
}

// ModelConfig sends models to an upstream.
type ModelConfig struct {
	Match     string            `yaml:"match"`       // a name or a pattern: qwen3-32b, gpt-*, *
	Provider  string            `yaml:"provider"`    // how it is spoken to: openai, chat, anthropic or gemini. Default: openai for api.openai.com, else chat
	BaseURL   string            `yaml:"base_url"`    // such as http://localhost:8000/v1. Default: the vendor's own; chat has none
	APIKey    string            `yaml:"api_key"`     // or:
	APIKeyEnv string            `yaml:"api_key_env"` // the environment variable that has it
	Upstream  string            `yaml:"upstream"`    // the upstream's name for the model. Default: the same
	Headers   map[string]string `yaml:"headers"`     // to send with each request

	// ContextWindow is how many tokens the model takes and answers with together:
	// with it, truncation "auto" drops old items beforehand. Default: unknown; what
	// is too long is then learned from the upstream's refusal.
	ContextWindow int `yaml:"context_window"`

	// What GET /v1/models tells of the model, beside its window. Default: nothing.
	Modalities []string `yaml:"modalities"` // what it takes: text, image, file, audio
	Tools      *bool    `yaml:"tools"`      // whether it can call any

	// What the upstream's dialect asks for; see the Options of the provider that a key
	// is for.
	SystemRole      string `yaml:"system_role"`       // chat: system (the default) or developer
	MaxTokens       string `yaml:"max_tokens"`        // chat: max_tokens or max_completion_tokens. Default: by the upstream
	Reasoning       string `yaml:"reasoning"`         // chat: the field that takes reasoning back, reasoning_content (DeepSeek) or reasoning; openai: encrypted (the default) or all
	CallIDLength    int    `yaml:"call_id_length"`    // chat: the longest call id. Default: 40; Mistral wants 9
	MaxOutputTokens int    `yaml:"max_output_tokens"` // anthropic: the bound where a request has none. Default: the model's
	Thinking        string `yaml:"thinking"`          // anthropic: budget or adaptive; gemini: budget or level. Default: by the model
	Structured      string `yaml:"structured"`        // anthropic: how a JSON schema is kept, format or tool. Default: by the model
	Cache           string `yaml:"cache"`             // anthropic: how long the context is kept to be read again, 5m (the default), 1h or off

	FirstToken time.Duration `yaml:"first_token"` // patience before the first word. Default: 10m
	Silence    time.Duration `yaml:"silence"`     // patience after it. Default: 10m
}

// Bytes is a size: a number, or one with k, m, g or t.
type Bytes int64

// UnmarshalYAML reads 1073741824, 512m or 10g.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	var number int64
	var unit string
	if c, err := fmt.Sscanf(n.Value, "%d%s", &number, &unit); c == 0 || (err != nil && !errors.Is(err, io.EOF) && c != 1) {
		return fmt.Errorf("line %d: %q is not a size such as 10g", n.Line, n.Value)
	}
	shift, ok := map[string]int{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit]
	if !ok || number < 0 || number > 1<<62>>shift {
		return fmt.Errorf("line %d: %q is not a size such as 10g", n.Line, n.Value)
	}
	*b = Bytes(number << shift)
	return nil
}

// modalities are what a model may take.
var modalities = []string{"text", "image", "file", "audio"}

// defaultLimits is the name of the limits that are for all projects.
const defaultLimits = "default"

// limits returns the limits by project; "" is for all.
func (c *Config) limits() map[berth.ProjectID]berth.Limits {
	limits := map[berth.ProjectID]berth.Limits{}
	for id, l := range c.Limits {
		if id == defaultLimits {
			id = ""
		}
		limits[berth.ProjectID(id)] = l.limits()
	}
	return limits
}

// loadConfig reads a configuration file; without one all is default.
func loadConfig(path string) (*Config, error) {
	c := &Config{Containers: ContainersConfig{Pool: 2}}
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if c.Driver == "" {
		c.Driver = "gvisor"
	}
	if c.Template == "" {
		c.Template = "base"
	}
	if c.Containers.Pool < 0 {
		return nil, fmt.Errorf("%s: containers.pool must not be negative", path)
	}
	for id := range c.Limits {
		if id != defaultLimits && !projectPattern.MatchString(id) {
			return nil, fmt.Errorf("%s: limits: %q is neither %s nor a project", path, id, defaultLimits)
		}
	}
	for i, m := range c.Models {
		kind, known := providers[m.provider()]
		if !known {
			return nil, fmt.Errorf("%s: models[%d].provider: %q is not %s", path, i, m.Provider, strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
		}
		if m.Match == "" || m.BaseURL == "" && m.provider() == providerChat {
			return nil, fmt.Errorf("%s: models[%d] needs match and base_url", path, i)
		}
		for _, key := range m.dialect() {
			if !slices.Contains(kind.keys, key) {
				return nil, fmt.Errorf("%s: models[%d].%s is not for provider %s", path, i, key, m.provider())
			}
		}
		if m.APIKey != "" && m.APIKeyEnv != "" {
			return nil, fmt.Errorf("%s: models[%d] has both api_key and api_key_env", path, i)
		}
		for _, kind := range m.Modalities {
			if !slices.Contains(modalities, kind) {
				return nil, fmt.Errorf("%s: models[%d].modalities: %q is none of %v", path, i, kind, modalities)
			}
		}
		if m.ContextWindow < 0 {
			return nil, fmt.Errorf("%s: models[%d].context_window must not be negative", path, i)
		}
	}
	return c, nil
}

// defaultState is where state is kept when nobody says.
func defaultState() string {
	if dir := os.Getenv("BERTH_STATE"); dir != "" {
		return dir
	}
	if os.Getuid() == 0 {
		return "/var/lib/berth"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "berth-state"
	}
	return filepath.Join(home, ".local", "state", "berth")
}
