package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"
)

// connect returns a client of the engine at host or, if host is empty, of the docker command's
// engine. It sends nothing yet.
func connect(host string) (*client.Client, error) {
	opts, err := address(host)
	if err != nil {
		return nil, err
	}
	c, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("make a client of the engine: %w", err)
	}
	return c, nil
}

// address returns the options that select the engine. As in the docker command, DOCKER_HOST
// overrides a context.
func address(host string) ([]client.Opt, error) {
	if host == "" {
		host = os.Getenv(client.EnvOverrideHost)
	}
	if host != "" {
		if err := checkHost(host); err != nil {
			return nil, err
		}
		return []client.Opt{client.FromEnv, client.WithHost(host)}, nil
	}
	config := configDir()
	name, err := contextName(config)
	if err != nil {
		return nil, err
	}
	if name == "" || name == "default" {
		return []client.Opt{client.FromEnv}, nil
	}
	return contextAddress(config, name)
}

// checkHost returns an error for an address that the client would misinterpret.
func checkHost(host string) error {
	if strings.HasPrefix(host, "ssh://") {
		return fmt.Errorf(
			"%s: engines are not reached over ssh; forward the socket: ssh -nNT -L /run/engine.sock:/var/run/docker.sock HOST, and use unix:///run/engine.sock",
			host)
	}
	return nil
}

// configDir returns the directory of the docker command's configuration.
func configDir() string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".docker")
}

// contextName returns the current context, or "".
func contextName(config string) (string, error) {
	if name := os.Getenv("DOCKER_CONTEXT"); name != "" {
		return name, nil
	}
	raw, err := os.ReadFile(filepath.Join(config, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var c struct{ CurrentContext string }
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(config, "config.json"), err)
	}
	return c.CurrentContext, nil
}

// contextAddress reads a context as docker context create writes it: its directories are named
// by the SHA-256 of its name.
func contextAddress(config, name string) ([]client.Opt, error) {
	sum := sha256.Sum256([]byte(name))
	dir := hex.EncodeToString(sum[:])
	raw, err := os.ReadFile(filepath.Join(config, "contexts", "meta", dir, "meta.json"))
	if err != nil {
		return nil, fmt.Errorf("the context %q: %w", name, err)
	}
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if err := json.Unmarshal(raw, &meta); err != nil {
		return nil, fmt.Errorf("the context %q: %w", name, err)
	}
	e := meta.Endpoints["docker"]
	if e.Host == "" {
		return nil, fmt.Errorf("the context %q has no engine", name)
	}
	if e.SkipTLSVerify {
		return nil, fmt.Errorf("the context %q does not verify its engine's certificate; use another", name)
	}
	if err := checkHost(e.Host); err != nil {
		return nil, fmt.Errorf("the context %q: %w", name, err)
	}
	opts := []client.Opt{client.WithAPIVersionFromEnv()}
	tls := filepath.Join(config, "contexts", "tls", dir, "docker")
	if _, err := os.Stat(tls); err == nil {
		opts = append(opts, client.WithTLSClientConfig(filepath.Join(tls, "ca.pem"), filepath.Join(tls, "cert.pem"),
			filepath.Join(tls, "key.pem")))
	}
	return append(opts, client.WithHost(e.Host)), nil
}
