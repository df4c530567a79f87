package e2e

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write what the tests exercise into docs/clients.md")

// A client is one package that the tests use as it is shipped, in one version.
type client struct {
	name     string   // in its registry
	registry string   // PyPI, npm or Go
	lock     string   // the file that pins its version
	alias    string   // its name there, if it is another
	programs []string // the sources of its tests
	everyday bool     // make test runs it; make test-clients runs all
}

// clients are all clients, in the order of the table in docs/clients.md.
func clients() []client {
	var all []client
	for _, c := range pythonClients {
		all = append(all, client{name: c.name, registry: "PyPI", lock: c.lock(),
			programs: []string{filepath.Join("python", c.program)}, everyday: c.everyday})
	}
	for _, c := range nodeClients {
		var programs []string
		for _, test := range c.tests {
			programs = append(programs, filepath.Join(c.dir, test))
		}
		all = append(all, client{name: c.name, registry: "npm", lock: filepath.Join(c.dir, "package-lock.json"),
			alias: c.alias, programs: programs, everyday: c.everyday})
	}
	for _, c := range goClients {
		all = append(all, client{name: c.name, registry: "Go", lock: "goclients/go.mod",
			programs: []string{filepath.Join("goclients", c.file)}})
	}
	return append(all,
		client{name: "@openai/codex", registry: "npm", lock: "codex/package-lock.json",
			programs: []string{"codex_test.go"}},
		client{name: "@anthropic-ai/claude-code", registry: "npm", lock: "anthropic/package-lock.json",
			programs: []string{"claude_test.go"}},
		client{name: "opencode-ai", alias: "opencode-linux-x64", registry: "npm", lock: "opencode/package-lock.json",
			programs: []string{"opencode_test.go"}},
		client{name: "@continuedev/cli", registry: "npm", lock: "continue/package-lock.json",
			programs: []string{"continue_test.go"}},
		client{name: "@qwen-code/qwen-code", registry: "npm", lock: "coding/package-lock.json",
			programs: []string{"qwen_test.go"}},
		client{name: "cline", alias: "@cline/cli-linux-x64", registry: "npm", lock: "coding/package-lock.json",
			programs: []string{"cline_test.go"}},
		client{name: "github.com/openai/openai-go/v3", registry: "Go", lock: "../go.mod", everyday: true,
			programs: []string{"go_test.go", "go_tools_test.go", "chat_test.go", "conversation_test.go",
				"assistants_test.go", "socket_test.go"}},
	)
}

// logAtEnd returns a function that keeps what a failed client printed. The test logs it once more at its end, after the
// log of its server: who sees only the end of a long output sees this. Call it before the server is started.
func logAtEnd(t *testing.T) (keep func(name, output string)) {
	var all strings.Builder
	t.Cleanup(func() {
		if all.Len() > 0 {
			t.Logf("once more, what failed:%s", &all)
		}
	})
	return func(name, output string) { fmt.Fprintf(&all, "\n%s:\n%s", name, output) }
}

// skipClient skips the test unless all clients were asked for.
func skipClient(t *testing.T) {
	t.Helper()
	if os.Getenv("BERTH_TEST_CLIENTS") == "" {
		t.Skip("skipped: make test-clients runs it")
	}
}

var titled = regexp.MustCompile(`(?m)^\s*(?:@job|test|t\.Run)\((?:"([^"]+)"|'((?:[^'\\]|\\.)+)')`)

// jobs returns the titles of the jobs in a client's program.
func jobs(t *testing.T, path string) []string {
	t.Helper()
	var titles []string
	for _, m := range titled.FindAllStringSubmatch(read(t, path), -1) {
		titles = append(titles, strings.ReplaceAll(m[1]+m[2], `\`, ""))
	}
	if len(titles) == 0 {
		t.Fatalf("%s has no jobs", path)
	}
	return titles
}

// version returns the version that the client's lock file pins.
func (c client) version(t *testing.T) string {
	t.Helper()
	name := c.name
	if c.alias != "" {
		name = c.alias
	}
	raw := read(t, c.lock)
	var found []string
	switch c.registry {
	case "PyPI":
		found = regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `(?:\[\w+\])?==(\S+)`).FindStringSubmatch(raw)
	case "Go":
		found = regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(name) + ` v(\S+)`).FindStringSubmatch(raw)
	case "npm":
		var lock struct {
			Packages map[string]struct{ Version string }
		}
		if err := json.Unmarshal([]byte(raw), &lock); err != nil {
			t.Fatal(err)
		}
		found = []string{"", lock.Packages["node_modules/"+name].Version}
	}
	if len(found) != 2 || found[1] == "" {
		t.Fatalf("%s does not pin %s", c.lock, name)
	}
	return found[1]
}

// exercised describes what the client's programs do: the titles of one program's
// jobs, or the names of several programs.
func (c client) exercised(t *testing.T) string {
	t.Helper()
	if len(c.programs) == 1 {
		return strings.Join(jobs(t, c.programs[0]), "; ")
	}
	var parts []string
	for _, p := range c.programs {
		name, _, _ := strings.Cut(filepath.Base(p), ".")
		parts = append(parts, strings.TrimSuffix(name, "_test"))
	}
	return strings.Join(parts, ", ")
}

// TestClientsTable compares the table in docs/clients.md with the tests. With -update, a row keeps the day since when
// its version is tested; a row of a client or version that is new gets today's.
func TestClientsTable(t *testing.T) {
	const path, begin, end = "../docs/clients.md", "<!-- written by go test ./e2e -run TestClientsTable -update -->\n",
		"<!-- end -->\n"
	doc := read(t, path)
	since := make(map[string]string) // by client and version, as the row begins
	for _, m := range regexp.MustCompile(`(?m)^(\| .+? \| \S+ \|) (\d{4}-\d\d-\d\d) \|`).FindAllStringSubmatch(doc, -1) {
		since[m[1]] = m[2]
	}
	table := "| client | version | since | exercised |\n|---|---|---|---|\n"
	for _, c := range clients() {
		name := fmt.Sprintf("`%s` (%s)", c.name, c.registry)
		if c.everyday {
			name = "**" + name + "**"
		}
		row := fmt.Sprintf("| %s | %s |", name, c.version(t))
		day := cmp.Or(since[row], time.Now().UTC().Format(time.DateOnly))
		table += fmt.Sprintf("%s %s | %s |\n", row, day, c.exercised(t))
	}
	before, rest, ok := strings.Cut(doc, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	want := before + begin + table + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if doc != want {
		t.Errorf("the table in %s is stale: run go test ./e2e -run TestClientsTable -update", path)
	}
}
