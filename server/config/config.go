// Package config has the configuration of a server: its keys with their defaults, how it is read from a file, variables
// and flags, its errors and probable mistakes, and how it is shown. It opens nothing that it names. What
// only other packages can check, Load is given as functions.
package config

import (
	"github.com/berth-run/berth"
)

// UnsafeLocal is the driver without isolation.
const UnsafeLocal = "unsafe-local"

// Drivers are the values of driver.
var Drivers = []string{"docker", "gvisor", "kubernetes", "microvm", UnsafeLocal}

// The values of build_template.
const (
	BuildAuto  = "auto"
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

	// BuildTemplate is whether berth serve builds or loads the default template by itself if there is no
	// template and this machine can do it: "auto" (the default) or "never".
	BuildTemplate string `yaml:"build_template"`

	// TemplateArchives is a directory of archives of templates, TEMPLATE_ARCH.tar, as berth image save writes them. If
	// the default template is missing and has one, berth serve loads it in place of a build.
	TemplateArchives string `yaml:"template_archives"`

	// State is the directory of all state. Default: /var/lib/berth as root, else
	// ~/.local/state/berth.
	State string `yaml:"state"`

	// Blobs is the URL of an S3-compatible bucket for files, skills, snapshots and parts of
	// uploads: s3://my-bucket?region=eu-central-1. Default: directories of State.
	Blobs string `yaml:"blobs"`

	Log     Log      `yaml:"log"`
	Metrics Listener `yaml:"metrics"` // for Prometheus to scrape /metrics: all projects, without a key
	Traces  Traces   `yaml:"traces"`
	Audit   Audit    `yaml:"audit"`
	Pprof   Listener `yaml:"pprof"` // of Go profiles at /debug/pprof/; a loopback address

	Server     Server          `yaml:"server"`
	Docker     Docker          `yaml:"docker"`
	MicroVM    MicroVM         `yaml:"microvm"`
	Kubernetes Kubernetes      `yaml:"kubernetes"`
	Containers Containers      `yaml:"containers"`
	Shell      Shell           `yaml:"shell"`
	Responses  Responses       `yaml:"responses"`
	Budget     Budget          `yaml:"budget"`
	Preview    Preview         `yaml:"preview"`
	CORS       CORS            `yaml:"cors"`
	E2B        E2B             `yaml:"e2b"`
	Terminal   OpenTerminal    `yaml:"open_terminal"`
	SSH        SSH             `yaml:"ssh"`
	EndUsers   EndUsers        `yaml:"end_users"`
	Pulls      Pulls           `yaml:"images"`
	Console    bool            `yaml:"console"` // serve the web console at /console/. Default: true
	SignIn     SignIn          `yaml:"sign_in"`
	Proxy      Proxy           `yaml:"proxy"`
	Fetch      Fetch           `yaml:"fetch"`
	MCP        MCP             `yaml:"mcp"`
	WebSearch  WebSearch       `yaml:"web_search"`
	Images     ImageGeneration `yaml:"image_generation"`
	Store      Store           `yaml:"store"`
	Cluster    Cluster         `yaml:"cluster"`
	Vectors    VectorStores    `yaml:"vector_stores"`
	Batches    Batches         `yaml:"batches"`
	Disk       Disk            `yaml:"disk"`

	// Limits are the limits of projects, by project id. "default" applies where a project
	// sets none. berth project limit changes limits without a restart.
	Limits map[string]Limits `yaml:"limits"`

	// Retention is how long the objects of projects are retained, by project id. "default" applies where a project
	// has no value.
	Retention Retentions `yaml:"retention"`

	// Upstreams are model servers, by name. An upstream is used only if an entry of Models
	// names it.
	Upstreams map[string]*Upstream `yaml:"upstreams"`

	// Currency is the currency of all prices, an ISO 4217 code. Default: usd.
	Currency string `yaml:"currency"`

	Retry Retry `yaml:"retry"`

	// Models routes model names to upstreams. The first entry whose pattern matches wins.
	// Default: routes from the vendors' environment variables, see environmentModels. The
	// demo model "scripted" is always available.
	Models []Model `yaml:"models"`

	path    string            // of the file; "" if there is none
	origins map[string]origin // of the keys that are set
}

// File returns the path of the configuration file, or "".
func (c *Config) File() string { return c.path }

// IsSet reports whether a key is set: it does not have its default.
func (c *Config) IsSet(key string) bool {
	_, set := c.origins[key]
	return set
}

// defaultLimits is the key of the limits for all projects.
const defaultLimits = "default"

// ProjectLimits returns the limits by project. The key "" applies to all projects.
func (c *Config) ProjectLimits() map[berth.ProjectID]berth.Limits {
	limits := map[berth.ProjectID]berth.Limits{}
	for id, l := range c.Limits {
		if id == defaultLimits {
			id = ""
		}
		limits[berth.ProjectID(id)] = l.ForProject()
	}
	return limits
}
