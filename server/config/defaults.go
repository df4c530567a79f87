package config

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A Setting is a key of the configuration that a flag of berth serve and an environment variable
// also set. The flag wins, then the variable, then the file.
type Setting struct {
	Flag  string // without dashes
	Key   string
	Usage string
}

// Settings are all flags of berth serve, except --config.
var Settings = []Setting{
	{"listen", "server.listen", "address to serve on; one that is not loopback needs an API key first"},
	{"await-key", "server.await_key", "start without an API key, and refuse every request until there is one"},
	{"state", "state", "directory for all state"},
	{"build-template", "build_template", "build the base template by itself if there is none: auto or never"},
	{"store", "store.url", "URL of a PostgreSQL database (postgres://…) in place of a file in the state directory"},
	{"preview-domain", "preview.domain",
		"domain that gives container ports host names, PORT-CONTAINER.DOMAIN, such as localhost or preview.example.net"},
	{"cluster-address", "cluster.address",
		"address at which the other servers of the cluster reach this one, host:port"},
	{"metrics-listen", "metrics.listen", "address for Prometheus to scrape /metrics: all projects, without a key"},
	{"traces-endpoint", "traces.endpoint",
		"URL of an OpenTelemetry collector for traces (OTLP over HTTP), such as http://127.0.0.1:4318"},
	{"pprof-listen", "pprof.listen", "loopback address of Go profiles at /debug/pprof/"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "text or json"},
}

// FileVariable is the environment variable for --config.
const FileVariable = "BERTH_CONFIG"

// Variable returns the name of the setting's environment variable.
func (s Setting) Variable() string {
	return "BERTH_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// Default returns the value of the setting if nothing sets it.
func (s Setting) Default() string {
	v := s.value()
	if v.Kind() == reflect.Bool {
		return strconv.FormatBool(v.Bool())
	}
	return v.String()
}

// IsBool reports whether the setting is true or false.
func (s Setting) IsBool() bool { return s.value().Kind() == reflect.Bool }

// value returns the default value.
func (s Setting) value() reflect.Value {
	v := reflect.ValueOf(*Default())
	for part := range strings.SplitSeq(s.Key, ".") {
		for _, f := range fieldsOf(v) {
			if f.key == part {
				v = f.value
				break
			}
		}
	}
	return v
}

// Default returns the configuration if nothing is set. Values that depend on the machine are
// zero; see Config.derived.
func Default() *Config {
	return &Config{
		Driver: "gvisor", Template: "base", BuildTemplate: BuildAuto, State: stateDirectory(), Currency: "usd",
		TemplateArchives: "/usr/share/berth/templates",
		Log:              Log{Level: "info", Format: "text"},
		Traces:           Traces{Sample: 1},
		Server:           Server{Listen: "127.0.0.1:8080"},

		Kubernetes: Kubernetes{CPURequest: 0.1, MemoryRequest: 1},
		Containers: Containers{CPU: 2, PIDs: 512, Disk: 10 << 30, Idle: 20 * time.Minute,
			MaxIdle: 7 * 24 * time.Hour, Sleep: 30 * time.Second,
			Pool: defaultPool, MaxPool: defaultMaxPool,
			OnExpiry: berth.OnExpiryDelete, SnapshotLife: 30 * 24 * time.Hour},
		Shell: Shell{DefaultEnvironment: string(berth.DefaultContainer), Timeout: 10 * time.Minute,
			MaxTimeout: time.Hour, Output: 32768},
		Responses: Responses{MaxOutput: 16 << 20, History: 64 << 20},
		Budget:    Budget{MaxCost: "0", MaxFailures: 10, MaxRepeats: 50},
		MCP:       MCP{Timeout: 2 * time.Minute},
		WebSearch: WebSearch{Timeout: 20 * time.Second},
		Console:   true,
		SignIn: SignIn{Scopes: []string{"openid", "profile", "email"}, GroupsClaim: "groups",
			Session: 12 * time.Hour},
		EndUsers: EndUsers{
			User: []string{"header:X-OpenWebUI-User-Id", "header:X-User-Id", "safety_identifier", "user"},
			Chat: []string{"header:X-OpenWebUI-Chat-Id"}, Computer: "none"},
		Store:   Store{Synchronous: "normal"},
		Cluster: Cluster{Lease: 15 * time.Second, Absence: 5 * time.Minute},
		Vectors: VectorStores{Memory: 512 << 20, MaxText: 32 << 20},
		Batches: Batches{Concurrency: 8},
		E2B:     E2B{BuildTime: 30 * time.Minute, ImageSize: 16 << 30},
		Pulls:   Pulls{Mirror: Mirror{Registries: []string{"docker.io"}}},
		Retry:   Retry{Attempts: 4, Patience: 2 * time.Minute, Continue: "again"},
	}
}

// stateDirectory returns the default state directory.
func stateDirectory() string {
	if os.Getuid() == 0 {
		return "/var/lib/berth"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "berth-state"
	}
	return filepath.Join(home, ".local", "state", "berth")
}

// DefaultState returns the default of --state for commands without --config.
func DefaultState() string { return cmp.Or(os.Getenv("BERTH_STATE"), stateDirectory()) }

// InState returns the arguments of a berth command for a state directory.
func InState(state string, args ...string) []string {
	if state == DefaultState() {
		return args
	}
	return append(args, "--state", state)
}
