package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The example in docs/configuration.md is a valid configuration.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(manual), "```yaml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/configuration.md has no example")
	}
	c, err := readConfig(t, example)
	if err != nil {
		t.Fatal(err)
	}
	// Apart from examples, the manual shows the defaults.
	normal, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	shown := *c
	shown.path, shown.origins, shown.Limits = "", nil, nil
	normal.path, normal.origins = "", nil
	for _, all := range []*Config{&shown, normal} { // empty and missing lists are equal
		all.derive()
		all.Upstreams, all.Models, all.Containers.Pools, all.State = nil, nil, nil, ""
		all.Containers.Network.Private, all.Fetch.Private, all.MCP.Private, all.WebSearch.Private = nil, nil, nil, nil
		all.Vectors.EmbeddingModel, all.CORS.Origins = "", nil
	}
	if diff := cmp.Diff(normal, &shown, cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b EgressRule) bool {
			return a.String() == b.String()
		})); diff != "" {
		t.Errorf("the defaults differ from those of docs/configuration.md:\n%s", diff)
	}
	if c.Containers.Disk != 10<<30 || c.Containers.MaxIdle != 168*time.Hour || c.Retry.Patience != 2*time.Minute {
		t.Errorf("got %+v", c)
	}
	limits := c.ProjectLimits()
	if l := limits["proj_research"].Or(limits[""]); *l.RequestsPerMinute != -1 || *l.Containers != 20 ||
		*l.StorageBytes != 100<<30 || *l.ContainerMinutes != 7200 || *l.CostPerMonth != 500_000_000_000 {
		t.Errorf("limits: got %s", fmt.Sprint(l))
	}
}

func readConfig(t *testing.T, text string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Sources{Path: path})
}

func TestConfig(t *testing.T) {
	c, err := readConfig(t, "")
	if err != nil || c.Driver != "gvisor" || c.Template != "base" || c.Containers.Pool != 2 {
		t.Errorf("an empty file: got %+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"drvier: gvisor\n":                                                 "berth.yaml:1: unknown key drvier; did you mean driver?",
		"containers:\n  cpus: 3\n":                                         "berth.yaml:2: unknown key containers.cpus; did you mean cpu?",
		"containers:\n  memory: 2g\n":                                      "berth.yaml:2: unknown key containers.memory; known here: ",
		"cpu: 3\n":                                                         "unknown key cpu; did you mean containers.cpu?",
		"driver: gvisor\n---\ndriver: docker\n":                            "berth.yaml:2: a second YAML document begins here",
		"containers:\n  pool: -1\n":                                        `containers.pool: "-1" must be 0 or more`,
		"containers:\n  starts: -1\n":                                      `containers.starts: "-1" must be 0 or more`,
		"containers:\n  on_expiry: keep\n":                                 `containers.on_expiry: "keep" must be delete or snapshot`,
		"containers:\n  disk: 10x\n":                                       `containers.disk: "10x" is not a size such as 10g`,
		"containers:\n  idle: soon\n":                                      `containers.idle: "soon" must be a duration`,
		"limits:\n  proj: {responses: 1}\n":                                "\"proj\" is neither default nor a project id",
		"limits:\n  default: {responses: many}\n":                          `limits.default.responses: "many" is not a number`,
		"limits:\n  default: {storage: 1x}\n":                              `limits.default.storage: "1x" is not a number`,
		"limits:\n  default: {responses: -1}\n":                            "is not a number",
		"limits:\n  default: {respones: 1}\n":                              "berth.yaml:2: unknown key limits.default.respones; did you mean responses?",
		"models:\n- match: a\n":                                            "models[0] needs match and base_url",
		"models:\n- {match: a, base_url: b, api_key: c, api_key_env: D}\n": "both api_key and api_key_env",
		"image_generation: {size: large}\n":                                "size",
		"web_search: {backend: bing}\n":                                    `web_search.backend: "bing" must be`,
		"web_search: {url: 'http://x'}\n":                                  "web_search.backend is missing",
		"web_search: {backend: brave, api_key: a, api_key_env: B}\n":       "web_search has both api_key and api_key_env",
		"models:\n- {match: a, base_url: b, modalities: [smell]}\n":        "\"smell\" is not one of",
		"models:\n- {match: a, base_url: b, context_window: -1}\n":         `models[0].context_window: "-1" must be 0 or more`,
	} {
		if _, err := readConfig(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]Bytes{"7": 7, "2k": 2 << 10, "512m": 512 << 20, "1t": 1 << 40} {
		if c, err := readConfig(t, "disk: {low: "+text+"}"); err != nil || *c.Disk.Low != want {
			t.Errorf("%s: got %+v, %v", text, c, err)
		}
	}
	if _, err := Load(Sources{Path: "/no/such/file"}); err == nil {
		t.Error("a missing file: got no error")
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:8080": true, "localhost:1": true, "[::1]:1": true,
		"127.8.8.8:1": true,
		":8080":       false, "0.0.0.0:1": false, "10.0.0.1:1": false, "example.com:1": false, "nonsense": false} {
		if got := IsLoopback(addr); got != want {
			t.Errorf("%s: got %v", addr, got)
		}
	}
}

func TestTemplatesConfig(t *testing.T) {
	c, err := readConfig(t,
		"limits:\n  default: {templates: [py-*]}\n  proj_a: {templates: []}\n  proj_b: {containers: 1}\n")
	if err != nil {
		t.Fatal(err)
	}
	limits := c.ProjectLimits()
	if got := limits["proj_a"].Or(limits[""]).Templates; got == nil || len(got) != 0 {
		t.Errorf("proj_a: got %v, want an empty list", got)
	}
	if got := limits["proj_b"].Or(limits[""]).Templates; !slices.Equal(got, []string{"py-*"}) {
		t.Errorf("proj_b: got %v", got)
	}
	for _, text := range []string{"{templates: ['[']}", "{templates: ['']}", "{templates: none}"} {
		if _, err := readConfig(t, "limits: {default: "+text+"}\n"); err == nil {
			t.Errorf("%s: got no error", text)
		}
	}
}

// The example in docs/file-search.md is a valid configuration.
func TestFileSearchManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/file-search.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(manual), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	c, err := readConfig(t, example)
	if err != nil || len(c.Models) != 1 || c.Vectors.EmbeddingModel != c.Models[0].Match {
		t.Errorf("got %+v, %v", c, err)
	}
}
