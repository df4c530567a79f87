package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

// TestAddress checks that the engine is the one that the docker command would use.
func TestAddress(t *testing.T) {
	for _, tt := range []struct {
		name, host string
		env        map[string]string
		config     string
		want       string // the address, or a part of the error
	}{
		{"Nothing", "", nil, "", client.DefaultDockerHost},
		{"Environment", "", map[string]string{"DOCKER_HOST": "tcp://box:2375"}, "", "tcp://box:2375"},
		{"OptionPrevails", "unix:///option.sock", map[string]string{"DOCKER_HOST": "tcp://box:2375"}, "",
			"unix:///option.sock"},
		{"Context", "", nil, `{"currentContext":"laptop"}`, "unix:///laptop.sock"},
		{"HostPrevailsOverContext", "", map[string]string{"DOCKER_HOST": "tcp://box:2375"},
			`{"currentContext":"laptop"}`, "tcp://box:2375"},
		{"ContextFromEnvironment", "", map[string]string{"DOCKER_CONTEXT": "laptop"}, `{"currentContext":"lost"}`,
			"unix:///laptop.sock"},
		{"DefaultContext", "", nil, `{"currentContext":"default"}`, client.DefaultDockerHost},
		{"NoSuchContext", "", nil, `{"currentContext":"lost"}`, `the context "lost"`},
		{"ContextWithoutEngine", "", nil, `{"currentContext":"empty"}`, "has no engine"},
		{"UnverifiedContext", "", nil, `{"currentContext":"trusting"}`, "does not verify"},
		{"BrokenConfiguration", "", nil, `{`, "config.json"},
		{"SSH", "ssh://box", nil, "", "forward the socket"},
		{"SSHContext", "", nil, `{"currentContext":"far"}`, "forward the socket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("DOCKER_CONFIG", dir)
			for _, name := range []string{"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"} {
				t.Setenv(name, tt.env[name])
			}
			if tt.config != "" {
				write(t, filepath.Join(dir, "config.json"), tt.config)
			}
			writeContext(t, dir, "laptop", map[string]any{"Host": "unix:///laptop.sock"})
			writeContext(t, dir, "far", map[string]any{"Host": "ssh://box"})
			writeContext(t, dir, "trusting", map[string]any{"Host": "tcp://box:2376", "SkipTLSVerify": true})
			writeContext(t, dir, "empty", map[string]any{})
			c, err := connect(tt.host)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = c.DaemonHost()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func writeContext(t *testing.T, config, name string, endpoint map[string]any) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"Name": name, "Endpoints": map[string]any{"docker": endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(name))
	write(t, filepath.Join(config, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"), string(raw))
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
