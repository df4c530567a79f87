package config

import (
	"strings"
	"testing"
)

// Authorities of SSH are checked when the configuration is read.
func TestSSHAuthorities(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkRO0k8b0xJ8gTnRWpq0hvGcKVIYYvfYQJ8hVWm5oYd"
	for text, want := range map[string]string{
		"{key: " + key + ", projects: [proj_a]}":                          "",
		"{key: " + key + ", projects: [proj_a], role: maintainer}":        "",
		"{key: " + key + "}":                                              "projects",
		"{key: " + key + ", projects: [organization]}":                    "projects",
		"{key: " + key + ", projects: ['no project']}":                    "projects",
		"{key: " + key + ", projects: [proj_a], role: viewer}":            "role",
		"{key: " + key + ", projects: [proj_a], role: admin}":             "role",
		"{key: nonsense, projects: [proj_a]}":                             "key",
		"{key: 'command=\"id\" " + key + "', projects: [proj_a]}":         "key",
		"{key: " + key + ", projects: [proj_a], principals: [everybody]}": "principals",
	} {
		_, err := readConfig(t, "ssh: {authorities: ["+text+"]}\n")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want an error of %q", text, err, want)
		}
	}
	for _, listen := range []string{"2222", "127.0.0.1", "127.0.0.1:99999"} {
		if _, err := readConfig(t, "ssh: {listen: '"+listen+"'}\n"); err == nil {
			t.Errorf("the address %q was accepted", listen)
		}
	}
}
