package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

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

// ConfigVariable is the environment variable for --config.
const ConfigVariable = "BERTH_CONFIG"

// Variable returns the name of the setting's environment variable.
func (s Setting) Variable() string {
	return "BERTH_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// Default returns the value of the setting if nothing sets it.
func (s Setting) Default() string {
	v := reflect.ValueOf(*defaultConfig())
	for part := range strings.SplitSeq(s.Key, ".") {
		for _, f := range fieldsOf(v) {
			if f.key == part {
				v = f.value
				break
			}
		}
	}
	return v.String()
}

// Sources are the places from which a configuration is read.
type Sources struct {
	Path  string            // of the file; "" is none
	Flags map[string]string // values of the flags that are set, by name

	Verify bool // also check what Config.Verify checks, and report all errors at once
}

// An origin is where the value of a key was set. The zero origin is the default.
type origin struct {
	name string // path of the file, variable or flag
	line int    // in the file; 0 for a variable or a flag
}

func (o origin) String() string {
	switch {
	case o.name == "":
		return "default"
	case o.line > 0:
		return fmt.Sprintf("%s:%d", o.name, o.line)
	}
	return o.name
}

// defaultConfig returns the configuration if nothing is set. Values that depend on the machine are
// zero; see Config.derived.
func defaultConfig() *Config {
	return &Config{
		Driver: "gvisor", Template: "base", BuildTemplate: buildAuto, State: stateDirectory(), Currency: "usd",
		Log:    LogConfig{Level: "info", Format: "text"},
		Traces: TracesConfig{Sample: 1},
		Server: ServerConfig{Listen: "127.0.0.1:8080"},

		Kubernetes: KubernetesConfig{CPURequest: 0.1, MemoryRequest: 1},
		Containers: ContainersConfig{CPU: 2, PIDs: 512, Disk: 10 << 30, Idle: 20 * time.Minute,
			MaxIdle: 7 * 24 * time.Hour, Sleep: 30 * time.Second,
			Pool: defaultPool, OnExpiry: berth.OnExpiryDelete, SnapshotLife: 30 * 24 * time.Hour},
		Shell:     ShellConfig{Timeout: 10 * time.Minute, MaxTimeout: time.Hour, Output: 32768},
		Responses: ResponsesConfig{MaxOutput: 16 << 20, History: 64 << 20},
		Budget:    BudgetConfig{MaxCost: "0", MaxFailures: 10, MaxRepeats: 50},
		MCP:       MCPConfig{Timeout: 2 * time.Minute},
		WebSearch: WebSearchConfig{Timeout: 20 * time.Second},
		Console:   true,
		Store:     StoreConfig{Synchronous: "normal"},
		Cluster:   ClusterConfig{Lease: 15 * time.Second, Absence: 5 * time.Minute},
		Vectors:   VectorsConfig{Memory: 512 << 20, MaxText: 32 << 20},
		Batches:   BatchesConfig{Concurrency: 8},
		E2B:       E2BConfig{Builds: 3, BuildTime: 30 * time.Minute, ImageSize: 16 << 30},
		Retry:     RetryConfig{Attempts: 4, Patience: 2 * time.Minute, Continue: "again"},
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

// File returns the path of the configuration file, or "".
func (c *Config) File() string { return c.path }

// LoadConfig reads a configuration file and the variables of Settings. If path is "", the values
// that no variable sets are the defaults.
func LoadConfig(path string) (*Config, error) { return Load(Sources{Path: path}) }

// Load reads a configuration. Its error has a line for each invalid value, which names the file and
// line, the variable or the flag, the key, and what is allowed.
func Load(from Sources) (*Config, error) {
	var unreadable []error
	c := defaultConfig()
	c.path, c.origins = from.Path, map[string]origin{}
	if from.Path != "" {
		text, err := os.ReadFile(from.Path)
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		unreadable = c.decode(text)
	}
	for _, s := range Settings {
		if value := os.Getenv(s.Variable()); value != "" {
			unreadable = append(unreadable, c.set(s.Key, value, origin{name: s.Variable()})...)
		}
		if value, set := from.Flags[s.Flag]; set {
			unreadable = append(unreadable, c.set(s.Key, value, origin{name: "--" + s.Flag})...)
		}
	}
	if _, set := c.origins["shell.timeout"]; !set {
		c.Shell.Timeout = min(c.Shell.Timeout, c.Shell.MaxTimeout)
	}
	invalid := c.check()
	if from.Verify {
		invalid = errors.Join(invalid, c.verifyBeside(unreadable, invalid))
	}
	if err := c.problems(unreadable, invalid); err != nil {
		return nil, err
	}
	return c, nil
}

// verifyBeside returns the errors of Verify in the sections that have no other errors. Verify reads
// models only if they are valid.
func (c *Config) verifyBeside(unreadable []error, invalid error) error {
	wrong := map[string]bool{}
	for _, err := range slices.Concat(unreadable, eachError(invalid)) {
		wrong[sectionOf(err)] = true
	}
	var found []error
	for _, err := range c.verify(!wrong["models"]) {
		if !wrong[sectionOf(err)] {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

// set sets a key to the text of a variable or a flag.
func (c *Config) set(key, value string, from origin) []error {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	parts := strings.Split(key, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		n = &yaml.Node{Kind: yaml.MappingNode,
			Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: parts[i]}, n}}
	}
	c.origins[key] = from
	r := keyReader{lines: map[string]int{}, problems: new([]error)}
	r.check(n, reflect.TypeFor[Config](), keyPath{})
	if len(*r.problems) == 0 {
		r.fail(n, c.in(n.Decode(c)))
	}
	var located []error // while the origin is that of this value
	for _, err := range *r.problems {
		located = append(located, c.in(err))
	}
	return located
}

var (
	keyStart = regexp.MustCompile(`^[a-z_]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*`)
	keyEnd   = regexp.MustCompile(`(?:\.[A-Za-z0-9_-]+|\[\d+\])$`)
)

// decode parses the text of a file. Its errors name keys. The values of other keys are set.
func (c *Config) decode(text []byte) []error {
	var document, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil // empty, or comments only
	} else if err != nil {
		return []error{invalidYAML(err, text)}
	}
	if err := d.Decode(&second); err == nil {
		return []error{&keyError{max(second.Line, 1),
			"a second YAML document begins here; put all keys into one, without a line ---"}}
	} else if !errors.Is(err, io.EOF) {
		return []error{invalidYAML(err, text)}
	}
	if len(document.Content) == 0 {
		return nil
	}
	expandStore(document.Content[0])
	r := keyReader{lines: map[string]int{}, problems: new([]error)}
	r.check(document.Content[0], reflect.TypeFor[Config](), keyPath{})
	for key, line := range r.lines {
		c.origins[key] = origin{c.path, line}
	}
	if err := document.Decode(c); err != nil && len(*r.problems) == 0 {
		return []error{fmt.Errorf("invalid configuration: %w", err)}
	}
	return *r.problems
}

// expandStore replaces the short form "store: URL".
func expandStore(top *yaml.Node) {
	if top.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		if v := top.Content[i+1]; top.Content[i].Value == "store" && v.Kind == yaml.ScalarNode &&
			v.ShortTag() == "!!str" {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "url", Line: v.Line}
			top.Content[i+1] = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{key, v},
				Line: v.Line}
		}
	}
}

// in adds to an error where the key was set with which the error begins.
func (c *Config) in(err error) error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 0 {
		var located []error
		for _, e := range all.Unwrap() {
			located = append(located, c.in(e))
		}
		return errors.Join(located...)
	}
	if _, placed := errors.AsType[*placedError](err); placed {
		return err
	}
	begins := keyOf(err)
	if k, ok := errors.AsType[*keyError](err); ok && k.line > 0 {
		return &placedError{fmt.Errorf("%s: %w", origin{c.path, k.line}, err), begins, k.line, false}
	}
	for key := begins; key != ""; {
		if o, set := c.origins[key]; set && o.line == 0 { // a variable or a flag stands for the key
			return &placedError{errors.New(o.name + strings.TrimPrefix(err.Error(), key)), begins, 0,
				strings.HasPrefix(o.name, "--")}
		} else if set {
			return &placedError{fmt.Errorf("%s: %w", o, err), begins, o.line, false}
		}
		parent := keyEnd.ReplaceAllString(key, "")
		if parent == key {
			break
		}
		key = parent
	}
	if c.path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// portProblem returns what is wrong with the port of an address, or "".
func portProblem(port string) string {
	if n, err := strconv.ParseUint(port, 10, 64); err == nil && n > math.MaxUint16 {
		return "a port out of range"
	}
	switch {
	case port == "":
		return "no port"
	case !isPort(port):
		return "an unknown port"
	}
	return ""
}

// isPort reports whether a text is a port: a number, or the name of a service such as http.
func isPort(text string) bool {
	_, err := net.LookupPort("tcp", text)
	return err == nil && text != ""
}

// checkAddresses checks the addresses to listen on.
func (c *Config) checkAddresses() error {
	var wrong []error
	for _, a := range []struct{ key, address string }{{"server.listen", c.Server.Listen},
		{"metrics.listen", c.Metrics.Listen}, {"pprof.listen", c.Pprof.Listen}, {"server.tls.acme.listen",
			c.Server.TLS.ACME.Listen}} {
		if a.address == "" && a.key != "server.listen" {
			continue
		}
		_, port, err := net.SplitHostPort(a.address)
		if problem := portProblem(port); err == nil && problem != "" {
			wrong = append(wrong, fmt.Errorf("%s: %q has %s; write one from 0 to 65535, such as %s", a.key, a.address,
				problem, "127.0.0.1:8080"))
		} else if err != nil {
			example := "127.0.0.1:8080"
			if _, err := strconv.ParseUint(a.address, 10, 16); err == nil {
				example = "127.0.0.1:" + a.address
			}
			wrong = append(wrong, fmt.Errorf("%s: %q is not an address; write HOST:PORT, such as %s", a.key, a.address,
				example))
		} else if a.key == "pprof.listen" && !isLoopback(a.address) {
			wrong = append(wrong,
				fmt.Errorf("pprof.listen: %s is not a loopback address; use one, such as 127.0.0.1:6060", a.address))
		}
	}
	return errors.Join(wrong...)
}
