package config

import (
	"slices"
	"strings"
	"testing"
)

func TestCORSConfig(t *testing.T) {
	c, err := readConfig(t,
		"cors: {origins: [https://App.example, 'http://localhost:3000', 'https://a.example:443']}\n")
	if want := []string{"https://app.example", "http://localhost:3000", "https://a.example"}; err != nil ||
		!slices.Equal(c.CORS.Origins, want) {
		t.Errorf("got %+v, %v, want %v", c, err, want)
	}
	if c, err = readConfig(t, "cors: {origins: ['*']}\n"); err != nil || len(c.CORS.Origins) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, origins := range []string{"app.example", "https://app.example/", "https://app.example/x",
		"https://*.example", "https://user@app.example", "ftp://app.example", "'null'",
		"''", "'*', https://app.example", "'https://app.example?x'"} {
		if _, err := readConfig(t, "cors: {origins: ["+origins+"]}\n"); err == nil || !strings.Contains(err.Error(),
			"cors.origins") {
			t.Errorf("%s: got %v", origins, err)
		}
	}
}

func TestTLSConfig(t *testing.T) {
	for text, want := range map[string]string{
		"{cert_file: a}": "server.tls needs both",
		"{cert_file: a, key_file: b, acme: {domains: [x.y]}}": "server.tls has both cert_file and acme",
		"{acme: {email: a@b}}":                                "server.tls.acme needs domains",
		"{acme: {domains: [localhost]}}":                      `server.tls.acme.domains[0]: "localhost" is not a domain`,
		"{acme: {domains: [127.0.0.1]}}":                      `server.tls.acme.domains[0]: "127.0.0.1" is not a domain`,
		"{acme: {domains: ['*.x.y']}}":                        `server.tls.acme.domains[0]: "*.x.y" is not a domain`,
		"{acme: {domains: [x.y], listen: 80}}":                `server.tls.acme.listen: "80" is not an address`,
	} {
		if _, err := readConfig(t, "server: {tls: "+text+"}\n"); err == nil || !strings.Contains(err.Error(),
			"berth.yaml:1: "+want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
