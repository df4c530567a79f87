package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A flag wins over a variable, a variable over the file.
func TestSources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path,
		[]byte("server: {listen: 127.0.0.1:1}\nmetrics: {listen: 127.0.0.1:2}\nlog:\n  level: debug\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BERTH_LISTEN", "127.0.0.1:11")
	t.Setenv("BERTH_METRICS_LISTEN", "127.0.0.1:12")
	t.Setenv("BERTH_LOG_FORMAT", "") // an empty variable is not set
	c, err := Load(Sources{Path: path, Flags: map[string]string{"listen": "127.0.0.1:21", "verbose": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Server.Listen != "127.0.0.1:21" || c.Metrics.Listen != "127.0.0.1:12" || c.Log.Level != "debug" ||
		c.Log.Format != "text" {
		t.Errorf("got %+v", c)
	}
	for key, want := range map[string]string{"server.listen": "--listen", "metrics.listen": "BERTH_METRICS_LISTEN",
		"log.level": path + ":4", "log.format": "default"} {
		if got := c.origins[key].String(); got != want {
			t.Errorf("%s comes from %q, want %q", key, got, want)
		}
	}
	for name, value := range map[string]string{"BERTH_LISTEN": "8080", "BERTH_PPROF_LISTEN": "0.0.0.0:1",
		"BERTH_PREVIEW_DOMAIN": "127.0.0.1"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := Load(Sources{Path: path}); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The table in docs/configuration.md has all settings with their variables, keys and defaults.
func TestSettingsManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(manual), "| flag | variable | key |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, s := range Settings {
		if row := fmt.Sprintf("\n| `--%s` | `%s` | `%s` | ", s.Flag, s.Variable(), s.Key); !strings.Contains(table,
			row) {
			t.Errorf("the table has no row %q", row)
		} else if s.Flag != "state" && s.Default() != "" &&
			!strings.Contains(strings.SplitAfter(strings.Split(table, row)[1], "\n")[0], "`"+s.Default()+"`") {
			t.Errorf("the row of --%s does not show the default %s", s.Flag, s.Default())
		}
	}
	if got, want := strings.Count(table, "\n| `--"), len(Settings)+1; got != want { // and --config
		t.Errorf("the table has %d flags, want %d", got, want)
	}
}

var commentedKey = regexp.MustCompile(`(?m)^# ( *(?:[a-z_]+:|- ).*)$`)

// The starter file is valid as it is, and with its keys.
func TestStarter(t *testing.T) {
	if c, err := readConfig(t, string(Starter)); err != nil || len(c.origins) > 0 {
		t.Errorf("got %v, %v", c, err)
	}
	text := commentedKey.ReplaceAllString(string(Starter), "$1")
	c, err := readConfig(t, text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if len(c.Models) != 2 || c.Server.TLS.KeyFile == "" || c.Metrics.Listen == "" ||
		*c.Limits["default"].Responses != 50 {
		t.Errorf("got %+v", c)
	}
}

// What Show writes is a configuration with the same values, without secrets.
func TestShow(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL",
		"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"} {
		t.Setenv(name, "")
	}
	t.Setenv("ANTHROPIC_API_KEY", "hunter")
	c, err := readConfig(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(c.Show()); !strings.Contains(text, "match: \"claude-*\"") || !strings.Contains(text,
		"api_key_env: ANTHROPIC_API_KEY") || strings.Contains(text, "hunter") {
		t.Errorf("models of the environment: got\n%s", text)
	}
	for _, page := range []string{"../../docs/configuration.md", "../../docs/models.md"} {
		manual, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(manual), "```yaml\n")[1:] {
			example, _, _ := strings.Cut(part, "```")
			c, err := readConfig(t, example)
			if err != nil {
				t.Fatal(err)
			}
			var all []*Upstream
			for i := range c.Models {
				all = append(all, &c.Models[i].Upstream)
			}
			for _, u := range slices.AppendSeq(all, maps.Values(c.Upstreams)) {
				if u.APIKey != "" {
					u.APIKey = mask
				}
				for name := range u.Headers {
					u.Headers[name] = mask
				}
			}
			again, err := readConfig(t, string(c.Show()))
			if err != nil {
				t.Errorf("%s, example %d: %v in\n%s", page, i, err, c.Show())
				continue
			}
			if diff := cmp.Diff(c.derived(), again, cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty(),
				cmp.Comparer(func(a, b EgressRule) bool {
					return a.String() == b.String()
				})); diff != "" {
				t.Errorf("%s, example %d:\n%s", page, i, diff)
			}
		}
	}
	c, err = readConfig(t,
		"upstreams: {a: {base_url: 'https://u:hunter1@x.test/v1?key=hunter2', api_key: hunter3, headers: {X-Auth.a: hunter4}, proxy: 'http://p:hunter5@y'}}\nweb_search: {backend: brave, api_key: hunter6}\n")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(c.Show()); strings.Contains(text, "hunter") || strings.Count(text, mask) != 6 {
		t.Errorf("got\n%s", text)
	}
}

// Of the addresses of databases, the user stays readable; in others it may be a token.
func TestMaskedUser(t *testing.T) {
	for value, want := range map[string]string{
		"postgres://berth:secret@db/x":         "postgres://berth:REDACTED@db/x",
		"postgres://berth@db/x":                "postgres://berth@db/x",
		"postgresql://berth:s@db/x?password=s": "postgresql://berth:REDACTED@db/x?REDACTED",
		"https://token@example.com/":           "https://REDACTED@example.com/",
		"https://u:secret@example.com/":        "https://REDACTED@example.com/",
	} {
		if got := Masked("store.url", value); got != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
}

// leaks reports whether a text has the password of a test, or a part of it.
func leaks(text string) bool { return strings.Contains(text, "p4ssword") }

// No output of a configuration has the password of the database.
func TestStorePassword(t *testing.T) {
	const at = "postgres://berth:p4ssword@127.0.0.1:5432/berth"
	c, err := readConfig(t, "store: "+at+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Store.URL != at || c.Store.Synchronous != "normal" {
		t.Errorf("got %+v", c.Store)
	}
	if shown := string(c.Show()); leaks(shown) || !strings.Contains(shown, "127.0.0.1") {
		t.Errorf("config show: %s", shown)
	}
	for _, broken := range []string{"mysql://u:p4ssword@h/d", "postgres://u:p4ssword%zz@h/d",
		"postgres://u:p4ssword@h:port/d", "p4ssword",
		// Passwords with characters that are not percent-encoded, which a parser takes for another part.
		"postgres://u:p@ss/p4ssword@h/d", "postgres://u:p@p4ssword@h/d", "postgres://u:1#p4ssword@h/d",
		"postgres://u:1/p4ssword@h/d", "postgres://u:1?p4ssword@h/d"} {
		if shown := Masked("store.url", broken); strings.Contains(broken, "@") && leaks(shown) {
			t.Errorf("%s is shown as %s", broken, shown)
		}
	}
}
