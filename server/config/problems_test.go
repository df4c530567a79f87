package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// All errors of a configuration are reported together, in the order of their lines, and without
// those that only follow from others.
func TestAllProblems(t *testing.T) {
	text := `drvier: gvisor
containers:
  cpu: many
  idle: 20
  max_idle: 1m30s
limits:
  default: {storage: 1x, respones: 3}
  proj: {}
models:
- match: a
  base_ur: http://127.0.0.1:1
- match: b
log: {level: loud, level: info}
cors: {origins: [x, y]}
pprof: {listen: '0.0.0.0:1'}
`
	t.Setenv("BERTH_LOG_FORMAT", "xml")
	_, err := readConfig(t, text)
	want := []string{
		`BERTH_LOG_FORMAT: "xml" must be text or json`,
		`berth.yaml:1: unknown key drvier; did you mean driver?`,
		`berth.yaml:3: containers.cpu: "many" must be a number`,
		`berth.yaml:4: containers.idle: 20 needs a unit, such as 20m`,
		`berth.yaml:7: limits.default.storage: "1x" is not a number`,
		`berth.yaml:7: unknown key limits.default.respones; did you mean responses?`,
		`berth.yaml:11: unknown key models[0].base_ur; did you mean base_url?`,
		`berth.yaml:13: log.level: "loud" must be debug, info, warn or error`,
		`berth.yaml:13: log.level appears twice, first on line 13`,
		`berth.yaml:14: cors.origins[0]: "x" is not an origin`,
		`berth.yaml:14: cors.origins[1]: "y" is not an origin`,
		`berth.yaml:15: pprof.listen: 0.0.0.0:1 is not a loopback address`,
	}
	got := strings.Split(fmt.Sprint(err), "\n")
	if len(got) != len(want) {
		t.Fatalf("got %d errors, want %d:\n%v", len(got), len(want), err)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("error %d: got %q, want %q", i, got[i], want[i])
		}
	}
	_, err = readConfig(t, "models:\n"+strings.Repeat("- matsch: a\n", 50))
	if n := strings.Count(fmt.Sprint(err), "\n"); n != maxProblems || !strings.HasSuffix(fmt.Sprint(err),
		"\nand 31 more") {
		t.Errorf("50 errors: got %v", err)
	}
}

// Errors of syntax are in plain words, and name the line of the mistake.
func TestSyntaxErrors(t *testing.T) {
	for text, want := range map[string]string{
		"log:\n\tlevel: info\n":                               "2: invalid YAML: indent with spaces, not with tabs",
		"log:\n  level: info\n\tformat: text\n":               "3: invalid YAML: indent with spaces, not with tabs",
		"driver: gvisor\ntemplate: a: b\n":                    `2: invalid YAML: the value contains ": "`,
		"driver: gvisor\n  template: a\n":                     `2: invalid YAML: the value contains ": "`,
		"cors:\n  origins: [a, b\nlog:\n  level: info\n":      "2: invalid YAML: a [ or { is not closed",
		"template: 'it\ndriver: gvisor\n":                     "1: invalid YAML: a quote is opened but not closed",
		"driver: gvisor\ntemplate: 'it's'\n":                  "2: invalid YAML: the line does not continue the keys above it",
		"driver: gvisor\ntemplate\nlog: {}\n":                 "2: invalid YAML: expected KEY: VALUE",
		"models:\n  - match: a\n    base_url: b\n   tools: x": "4: invalid YAML: the line does not continue the list above it",
		"models:\n- base_url: b\n  match: *\n":                "3: invalid YAML: a value that begins with * or & must be quoted",
		"driver: gvisor\ntemplate: @x\n":                      "2: invalid YAML: a value that begins with @ must be quoted",
		"driver: gvisor\n\ntemplate: \"a\\q\"\n":              "3: invalid YAML: a backslash between double quotes",
		"driver: gvisor\ntemplate: \xff\n":                    "2: invalid YAML: the file must be text in UTF-8",
		"driver: gvisor\ntemplate: *gvisor\n":                 "2: invalid YAML: a value that begins with * must be quoted",
	} {
		if _, err := readConfig(t, text); err == nil || !strings.Contains(err.Error(), "berth.yaml:"+want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	c, err := readConfig(t, `upstreams:
  a: {provider: openai, api_key_env: BERTH_OWN_KEY}
  b: {provider: openai, api_key: secret}
models:
- match: gpt-*
  upstreams: [{name: a}]
- match: gpt-5
  upstreams: [{name: a}]
- match: claude-*
  base_url: http://x
limits:
  default: {cost_per_month: 5}
  proj_a: {cost_per_month: none}
budget: {max_cost: 1}
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.path, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, v := range os.Environ() { // of the process that runs the tests
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "BERTH_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("BERTH_LISTN", "127.0.0.1:1")
	t.Setenv("BERTH_OWN_KEY", "secret")
	t.Setenv("BERTH_STATE", t.TempDir())
	t.Setenv("BERTH_SOMETHING_ELSE_ENTIRELY", "1")
	t.Setenv("BERTH_SERVICE_PORT_HTTP", "80")
	t.Setenv("BERTH_PORT_80_TCP", "tcp://10.0.0.1:80")
	got := c.Warnings()
	want := []string{
		"berth.yaml:3: upstreams.b is not used",
		`berth.yaml:7: models[1] is not used: models[0], which matches "gpt-*", comes first`,
		"berth.yaml:12: limits.default.cost_per_month limits nothing, because no upstream has prices: add prices",
		"budget.max_cost limits nothing, because no upstream has prices",
		"berth.yaml contains an API key and all users can read it",
		"the environment variable BERTH_LISTN is not used; did you mean BERTH_LISTEN?",
		"the environment variable BERTH_SOMETHING_ELSE_ENTIRELY is not used; those",
	}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) || strings.Contains(got[i], "secret") {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

// Show writes no sections without keys.
func TestShowNoEmptySections(t *testing.T) {
	for _, text := range []string{"", "limits: {default: {}}\n",
		"upstreams: {a: {provider: openai, timeouts: {connect: 3s}}}\n"} {
		c, err := readConfig(t, text)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(c.Show()), "\n")
		for i, line := range lines[:len(lines)-1] {
			if indent := indentOf(line); strings.HasSuffix(strings.TrimSpace(line), ":") &&
				indentOf(lines[i+1]) <= indent {
				t.Errorf("%q: %q has nothing below it in\n%s", text, line, c.Show())
			}
		}
	}
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

func TestNoneIsNoSecret(t *testing.T) {
	c, err := readConfig(t, "models: [{match: qwen, base_url: 'http://127.0.0.1:11434/v1', api_key: none}]\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.path, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, w := range c.Warnings() {
		if strings.Contains(w, "API key") {
			t.Errorf("got %q", w)
		}
	}
}

// Errors name the key, and say how the value is written.
func TestMistakenForms(t *testing.T) {
	for text, want := range map[string]string{
		"upstreams: {near: {base_url: 'http://127.0.0.1:1/v1'}}\nmodels: [{match: a, upstream: near}]\n": "models[0].upstream is the model's name at an inline upstream; for the upstream near write upstreams: [{name: near}]",
		"models: [{match: a, upstream: near}]\n":                                                         "models[0] needs match and base_url, or match and upstreams, such as {match: gpt-*",
		"models: {a: {upstream: near}}\n":                                                                "models must be a list, such as [{match: gpt-*, upstreams: [{name: openai}]}]",
		"models: [{match: a, upstreams: near}]\n":                                                        `models[0].upstreams: "near" must be a list, such as [{name: openai}]`,
		"models: [{match: a, upstreams: [near]}]\n":                                                      `models[0].upstreams[0]: "near" must be a mapping with the name of an upstream, such as {name: openai}`,
		"listen: 127.0.0.1:8080\n":                                                                       "unknown key listen; did you mean server.listen or ",
		"containers: {pool: 50000}\n":                                                                    "containers.pool: the sandboxes may use",
		"containers: {pools: [{memory_limit: 64g, size: 50000}]}\n":                                      "containers.pools: the sandboxes may use",
	} {
		if _, err := readConfig(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
