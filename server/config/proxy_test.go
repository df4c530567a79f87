package config

import (
	"strings"
	"testing"
)

// Each mistake in proxy has an error that names the key, and none shows a password.
func TestProxyConfig(t *testing.T) {
	for text, want := range map[string]string{
		"proxy: {url: 'http://proxy:3128', username: u, password_env: P, no_proxy: [a.example, .b.example, 10.0.0.0/8, '10.1.1.1:80']}": "",
		"proxy: {url: none, projects: {proj_a: {url: 'socks5://proxy'}, proj_b: {url: none}}}":                                          "",
		"proxy: {url: 'http://u:hunter2@proxy:3128'}":                                                                                   "proxy.url: write the credentials into username",
		"proxy: {url: 'proxy:3128'}":                    "proxy.url: it is not the address of a proxy",
		"proxy: {url: 'ftp://proxy'}":                   "proxy.url: it is not the address of a proxy",
		"proxy: {username: u}":                          "proxy.username: it has no effect without proxy.url",
		"proxy: {url: 'http://proxy', password_env: P}": "proxy.username: it is missing",
		"proxy: {url: 'http://proxy', username: u, password_env: P, password_file: F}": "both password_env and password_file",
		"proxy: {url: 'http://proxy', no_proxy: ['*.example.com']}":                    "proxy.no_proxy[0]",
		"proxy: {url: 'http://proxy', no_proxy: ['a b']}":                              "proxy.no_proxy[0]",
		"proxy: {projects: {proj_a: {no_proxy: [a]}}}":                                 "proxy.projects.proj_a.url: it is missing",
		"proxy: {projects: {'a b': {url: none}}}":                                      "is no id of a project",
	} {
		_, err := readConfig(t, text+"\n")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("an error has the password: %v", err)
		}
	}
}
