package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
)

// The credentials of a bucket are looked for before the start.
func TestVerifyBlobs(t *testing.T) {
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	c, err := configOf(t, "blobs: s3://my-bucket\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := VerifyBlobs(c); err == nil || !strings.Contains(err.Error(), "no credentials of the bucket are found") {
		t.Errorf("without credentials: got %v", err)
	}
	t.Setenv("AWS_PROFILE", "nope")
	if err := VerifyBlobs(c); err == nil || !strings.Contains(err.Error(), "no credentials") {
		t.Errorf("a profile that does not exist: got %v", err)
	}
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	if err := VerifyBlobs(c); err != nil {
		t.Errorf("with credentials: got %v", err)
	}
}

// A state directory without a key, or which cannot be one, is an error before the start.
func TestVerifyState(t *testing.T) {
	state := t.TempDir()
	c, err := configOf(t, "server: {listen: '0.0.0.0:8080'}\nstate: "+state+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), c); err != nil {
		t.Errorf("of a state directory that a server has not used: %v", err)
	}
	open, err := Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), c); err == nil || !strings.Contains(err.Error(),
		"berth.yaml:1: server.listen: there is no API key, but 0.0.0.0:8080 is not a loopback address") {
		t.Errorf("without a key: got %v", err)
	}
	if _, _, err := open.Projects.CreateKey(t.Context(), "proj_y", project.KeyRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), c); err != nil {
		t.Errorf("with a key, beside an open database: %v", err)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), c); err != nil {
		t.Errorf("with a key: %v", err)
	}
}

// configOf reads a configuration.
func configOf(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Sources{Path: path})
}
