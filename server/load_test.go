package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/tool/websearch/backend"
)

// configure reads a configuration as a server does.
func configure(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(config.Sources{Path: path})
}

// Values whose form other packages know are checked when the configuration is read.
func TestCheckedValues(t *testing.T) {
	for text, want := range map[string]string{
		"web_search: {backend: searxng}\n":                       "web_search.url is required for searxng",
		"web_search: {backend: brave}\n":                         "web_search.api_key or api_key_env is required for brave",
		"web_search: {backend: http, url: 'ftp://u:secret@x'}\n": "web_search.url must be an http or https address",
		"blobs: http://bucket\n":                                 "berth.yaml:1: blobs: the scheme is",
		"store: mysql://h/d\n":                                   "berth.yaml:1: store.url must be the URL of a PostgreSQL database",
	} {
		if _, err := configure(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// The configuration names the search services that exist.
func TestSearchBackends(t *testing.T) {
	if !slices.Equal(config.SearchBackends, backend.Names) {
		t.Errorf("the configuration has %v, want %v", config.SearchBackends, backend.Names)
	}
}

// Verify reports all keys and files that are missing.
func TestAllMissing(t *testing.T) {
	c, err := configure(t, `upstreams:
  a: {provider: openai, api_key_env: BERTH_TEST_MISSING}
  b: {provider: openai, api_key_file: /no/such/file}
models:
- match: c
  base_url: http://x
  tls: {ca_file: /no/such/ca}
- match: d
  upstreams: [{name: a}]
web_search: {backend: tavily, api_key_env: BERTH_TEST_MISSING}
`)
	if err != nil {
		t.Fatal(err)
	}
	err = Verify(c)
	for i, want := range []string{"berth.yaml:2: upstreams.a.api_key_env: BERTH_TEST_MISSING is not set",
		"berth.yaml:3: upstreams.b.api_key_file: open /no/such/file",
		"berth.yaml:7: models[0].tls.ca_file: open /no/such/ca",
		"berth.yaml:10: web_search.api_key_env: BERTH_TEST_MISSING is not set"} {
		if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != 4 || !strings.Contains(lines[i], want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// An upstream whose key is missing from the environment is refused.
func TestUnsetKey(t *testing.T) {
	for _, text := range []string{"upstreams: {a: {provider: openai, api_key_env: BERTH_TEST_MISSING}}",
		"upstreams: {a: {provider: openai, api_key_envs: [BERTH_TEST_MISSING]}}",
		"models: [{match: a, base_url: 'http://x', api_key_env: BERTH_TEST_MISSING}]",
		"web_search: {backend: tavily, api_key_env: BERTH_TEST_MISSING}"} {
		c, err := configure(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(c); err == nil || !strings.Contains(err.Error(), "berth.yaml:1: ") ||
			!strings.Contains(err.Error(), ": BERTH_TEST_MISSING is not set in the environment") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// A model that the server itself uses needs an upstream.
func TestVerifyOwnModels(t *testing.T) {
	for text, want := range map[string]string{
		"image_generation: {model: nope}\n":        "berth.yaml:1: image_generation.model: no entry of models matches \"nope\"",
		"vector_stores: {embedding_model: nope}\n": "berth.yaml:1: vector_stores.embedding_model: no entry of models matches \"nope\"",
		"models: [{match: some, base_url: 'http://127.0.0.1:1/v1'}]\nimage_generation: {model: someother}\n": "berth.yaml:2: image_generation.model",
		"models: [{match: some, base_url: 'http://127.0.0.1:1/v1'}]\nimage_generation: {model: some}\n":      "",
	} {
		c, err := configure(t, text)
		if err == nil {
			err = Verify(c)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// Errors of the text, of rules and of what a server verifies are reported together.
func TestOneRound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.yaml")
	text := `nope: 1
upstreams: {near: {base_url: "http://127.0.0.1:1/v1", api_key_env: BERTH_TEST_UNSET}}
models: [{match: a, upstreams: [{name: near}]}]
containers: {idle: 20}
server: {listen: '127.0.0.1:99999'}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadVerified(config.Sources{Path: path})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"yaml:1: unknown key nope", "BERTH_TEST_UNSET",
		"yaml:4: containers.idle: 20 needs a unit", "yaml:5: server.listen"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A certificate file that is missing is found before the start.
func TestMissingCertificate(t *testing.T) {
	c, err := configure(t, "server: {tls: {cert_file: /no/such, key_file: /no/such}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(c); err == nil || !strings.Contains(err.Error(),
		"berth.yaml:1: server.tls.cert_file: open /no/such") {
		t.Errorf("a missing file: got %v", err)
	}
}

// The error for a wrong address of the database does not have its password.
func TestWrongStore(t *testing.T) {
	for _, broken := range []string{"mysql://u:p4ssword@h/d", "postgres://u:p4ssword%zz@h/d",
		"postgres://u:p4ssword@h:port/d", "p4ssword",
		// Passwords with characters that are not percent-encoded, which a parser takes for another part.
		"postgres://u:p@ss/p4ssword@h/d", "postgres://u:p@p4ssword@h/d", "postgres://u:1#p4ssword@h/d",
		"postgres://u:1/p4ssword@h/d", "postgres://u:1?p4ssword@h/d"} {
		if _, err := configure(t, "store: "+broken+"\n"); err == nil || strings.Contains(err.Error(), "p4ssword") ||
			!strings.Contains(err.Error(), "store.url must be") {
			t.Errorf("%s: got %v", broken, err)
		}
	}
}
