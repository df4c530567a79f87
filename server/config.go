package server

import (
	"github.com/berth-run/berth"
)

// unsafeLocal is the driver without isolation.
const unsafeLocal = "unsafe-local"

// driverNames are the values of driver.
var driverNames = []string{"docker", "gvisor", "kubernetes", "microvm", unsafeLocal}

// The values of build_template.
const (
	buildAuto  = "auto"
	buildNever = "never"
)

// Config is the configuration of a server, in YAML. Every field is optional; an unknown key
// is an error.
type Config struct {
	// Driver isolates containers: "gvisor" (the default; without root some limits are
	// missing), "microvm" (needs root, QEMU and a kernel, see berth image kernel), "docker",
	// "kubernetes",
	// or "unsafe-local", which runs commands on this machine without any isolation and is
	// for development only.
	Driver string `yaml:"driver"`

	// Template is the name or digest of the default template of containers. Default: base.
	Template string `yaml:"template"`

	// BuildTemplate is whether berth serve builds the base template by itself if there is no
	// template and this machine can build one: "auto" (the default) or "never".
	BuildTemplate string `yaml:"build_template"`

	// State is the directory of all state. Default: /var/lib/berth as root, else
	// ~/.local/state/berth.
	State string `yaml:"state"`

	// Blobs is the URL of an S3-compatible bucket for files, skills, snapshots and parts of
	// uploads: s3://my-bucket?region=eu-central-1. Default: directories of State.
	Blobs string `yaml:"blobs"`

	Log     LogConfig    `yaml:"log"`
	Metrics ListenConfig `yaml:"metrics"` // for Prometheus to scrape /metrics: all projects, without a key
	Traces  TracesConfig `yaml:"traces"`
	Pprof   ListenConfig `yaml:"pprof"` // of Go profiles at /debug/pprof/; a loopback address

	Server     ServerConfig     `yaml:"server"`
	Docker     DockerConfig     `yaml:"docker"`
	MicroVM    MicroVMConfig    `yaml:"microvm"`
	Kubernetes KubernetesConfig `yaml:"kubernetes"`
	Containers ContainersConfig `yaml:"containers"`
	Shell      ShellConfig      `yaml:"shell"`
	Responses  ResponsesConfig  `yaml:"responses"`
	Budget     BudgetConfig     `yaml:"budget"`
	Preview    PreviewConfig    `yaml:"preview"`
	CORS       CORSConfig       `yaml:"cors"`
	E2B        E2BConfig        `yaml:"e2b"`
	Console    bool             `yaml:"console"` // serve the web console at /console/. Default: true
	Fetch      FetchConfig      `yaml:"fetch"`
	MCP        MCPConfig        `yaml:"mcp"`
	WebSearch  WebSearchConfig  `yaml:"web_search"`
	Images     ImageConfig      `yaml:"image_generation"`
	Store      StoreConfig      `yaml:"store"`
	Cluster    ClusterConfig    `yaml:"cluster"`
	Vectors    VectorsConfig    `yaml:"vector_stores"`
	Batches    BatchesConfig    `yaml:"batches"`
	Disk       DiskConfig       `yaml:"disk"`

	// Limits are the limits of projects, by project id. "default" applies where a project
	// sets none. berth project limit changes limits without a restart.
	Limits map[string]LimitsConfig `yaml:"limits"`

	// Upstreams are model servers, by name. An upstream is used only if an entry of Models
	// names it.
	Upstreams map[string]*UpstreamConfig `yaml:"upstreams"`

	// Currency is the currency of all prices, an ISO 4217 code. Default: usd.
	Currency string `yaml:"currency"`

	Retry RetryConfig `yaml:"retry"`

	// Models routes model names to upstreams. The first entry whose pattern matches wins.
	// Default: routes from the vendors' environment variables, see environmentModels. The
	// demo model "scripted" is always available.
	Models []ModelConfig `yaml:"models"`

	path    string            // of the file; "" if there is none
	origins map[string]origin // of the keys that are set
}

// File returns the path of the configuration file, or "".
func (c *Config) File() string { return c.path }

// isSet reports whether a key is set: it does not have its default.
func (c *Config) isSet(key string) bool {
	_, set := c.origins[key]
	return set
}

// defaultLimits is the key of the limits for all projects.
const defaultLimits = "default"

// limits returns the limits by project. The key "" applies to all projects.
func (c *Config) limits() map[berth.ProjectID]berth.Limits {
	limits := map[berth.ProjectID]berth.Limits{}
	for id, l := range c.Limits {
		if id == defaultLimits {
			id = ""
		}
		limits[berth.ProjectID(id)] = l.Limits()
	}
	return limits
}
