package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/image"
)

// What a server would refuse or warn of is known without a server.
func TestVerifyMachine(t *testing.T) {
	for text, want := range map[string]string{
		"server: {listen: '127.0.0.1:99999'}\n":  `server.listen: "127.0.0.1:99999" has no port; write one from 0 to 65535`,
		"metrics: {listen: '127.0.0.1:nope!'}\n": `metrics.listen: "127.0.0.1:nope!" has no port`,
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
	if got := c.StateWarnings(); len(got) != 1 || !strings.Contains(got[0], `berth.yaml:1: template "nope" does not exist in `+state) {
		t.Errorf("got %q", got)
	}
	if c.Template = image.Base().Name; len(c.StateWarnings()) != 1 {
		t.Error("a named template that was not built is not warned of")
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
