package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/server/config"
)

// The servers of one cluster share the name of their Pods and have names of their own. Others have
// another one.
func TestSharedInstance(t *testing.T) {
	names := func(seal, conf string) (server, instance string) {
		t.Helper()
		dir := t.TempDir()
		path := filepath.Join(dir, "berth.yaml")
		if err := os.WriteFile(path,
			[]byte("driver: kubernetes\nkubernetes: {registry: r.example/b}\nstore: postgres://berth@db/berth\n"+conf),
			0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Sources{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if seal != "" {
			if err := os.WriteFile(filepath.Join(dir, "seal.key"), []byte(strings.Repeat(seal, 32)+"\n"),
				0o600); err != nil {
				t.Fatal(err)
			}
		}
		server, instance, err = sharedInstance(c, dir)
		if err != nil {
			t.Fatal(err)
		}
		return server, instance
	}
	const bucket, other = "blobs: s3://one?region=eu-central-1\n", "blobs: s3://two?region=eu-central-1\n"
	const member = "cluster: {listen: 127.0.0.1:7443}\n"
	a, of := names("5e", bucket+member)
	b, same := names("5e", bucket+member)
	if a == "" || a == b || len(of) != 12 || of != same {
		t.Errorf("two servers: %q of %q, %q of %q", a, of, b, same)
	}
	for what, config := range map[string][2]string{"another key": {"5f", bucket + member},
		"another bucket": {"5e", other + member}} {
		if _, got := names(config[0], config[1]); got == of || len(got) != 12 {
			t.Errorf("%s: got %q", what, got)
		}
	}
	for what, config := range map[string][2]string{"no cluster": {"5e", bucket}, "no server's directory": {"", bucket +
		member}} {
		if server, got := names(config[0], config[1]); server != "" || got != "" {
			t.Errorf("%s: got %q of %q", what, server, got)
		}
	}
}
