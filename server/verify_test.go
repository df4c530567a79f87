package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
)

// What a server would refuse or warn of is known without a server.
func TestVerifyMachine(t *testing.T) {
	for text, want := range map[string]string{
		"server: {listen: '127.0.0.1:99999'}\n":  `server.listen: "127.0.0.1:99999" has a port out of range; write one from 0 to 65535`,
		"metrics: {listen: '127.0.0.1:nope!'}\n": `metrics.listen: "127.0.0.1:nope!" has an unknown port`,
		"server: {listen: '127.0.0.1:'}\n":       `server.listen: "127.0.0.1:" has no port`,
	} {
		if _, err := readConfig(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	c, err := readConfig(t, "blobs: s3://my-bucket\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.VerifyBlobs(); err == nil || !strings.Contains(err.Error(), "no credentials of the bucket are found") {
		t.Errorf("without credentials: got %v", err)
	}
	t.Setenv("AWS_PROFILE", "nope")
	if err := c.VerifyBlobs(); err == nil || !strings.Contains(err.Error(), "no credentials") {
		t.Errorf("a profile that does not exist: got %v", err)
	}
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	if err := c.VerifyBlobs(); err != nil {
		t.Errorf("with credentials: got %v", err)
	}

	state := t.TempDir()
	if c, err = readConfig(t, "template: nope\nstate: "+state+"\n"); err != nil {
		t.Fatal(err)
	}
	if got := c.StateWarnings(); len(got) != 0 {
		t.Errorf("without a state directory: got %q", got)
	}
	if err := os.Mkdir(filepath.Join(state, "images"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := c.StateWarnings(); len(got) != 1 || !strings.Contains(got[0],
		`berth.yaml:1: template "nope" does not exist in `+state) {
		t.Errorf("got %q", got)
	}
	if c.Template = image.Base().Name; len(c.StateWarnings()) != 1 {
		t.Error("a named template that was not built is not warned of")
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
		c, err := readConfig(t, text)
		if err == nil {
			err = c.Verify()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// A driver or a database that cannot be used here is warned of, because it may be there at the start.
func TestMachineWarnings(t *testing.T) {
	state := t.TempDir()
	for text, want := range map[string]string{
		"driver: docker\ndocker: {host: 'unix:///nonexistent'}\n":        "berth.yaml:1: driver cannot be used on this machine: engine: ",
		"driver: microvm\nmicrovm: {qemu: /nonexistent}\n":               "berth.yaml:1: driver cannot be used on this machine: qemu: ",
		"store: postgres://berth:secret@127.0.0.1:1/x?sslmode=disable\n": "berth.yaml:1: store.url cannot be used on this machine: store: ",
		"driver: unsafe-local\n":                                         "",
	} {
		c, err := readConfig(t, text+"state: "+state+"\n")
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(c.MachineWarnings(t.Context()), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
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
		if got := masked("store.url", value); got != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
}

// A state directory without a key, or which cannot be one, is an error before the start.
func TestVerifyState(t *testing.T) {
	state := t.TempDir()
	c, err := readConfig(t, "server: {listen: '0.0.0.0:8080'}\nstate: "+state+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.VerifyState(t.Context()); err != nil {
		t.Errorf("of a state directory that a server has not used: %v", err)
	}
	if got := c.StateWarnings(); len(got) != 1 || !strings.Contains(got[0],
		"berth.yaml:1: server.listen needs an API key before the first start") {
		t.Errorf("got %q", got)
	}
	open, err := Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.VerifyState(t.Context()); err == nil || !strings.Contains(err.Error(),
		"berth.yaml:1: server.listen: there is no API key, but 0.0.0.0:8080 is not a loopback address") {
		t.Errorf("without a key: got %v", err)
	}
	if _, _, err := open.Projects.CreateKey(t.Context(), "proj_y", "", 0, berth.KeyLimits{}); err != nil {
		t.Fatal(err)
	}
	if err := c.VerifyState(t.Context()); err != nil {
		t.Errorf("with a key, beside an open database: %v", err)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.VerifyState(t.Context()); err != nil {
		t.Errorf("with a key: %v", err)
	}
	for _, path := range []string{"/etc/passwd", "/etc/passwd/state"} {
		if _, err := readConfig(t, "state: "+path+"\n"); err == nil || !strings.Contains(err.Error(),
			"state: /etc/passwd is not a directory") {
			t.Errorf("%s: got %v", path, err)
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
	_, err := Load(Sources{Path: path, Verify: true})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"yaml:1: unknown key nope", "BERTH_TEST_UNSET",
		"yaml:4: containers.idle: 20 needs a unit", "yaml:5: server.listen"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
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
