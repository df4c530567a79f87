package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestPreviewConfig(t *testing.T) {
	c, err := readConfig(t, "preview: {domain: Preview.Example.com}\n")
	if err != nil || c.Preview.Domain != "preview.example.com" {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, domain := range []string{".example.com", "*.example.com", "127.0.0.1", "example.com:80", "a_b.example",
		strings.Repeat("a.", 100) + "example"} {
		if _, err := readConfig(t, "preview: {domain: '"+domain+"'}\n"); err == nil || !strings.Contains(err.Error(),
			"preview.domain") {
			t.Errorf("%s: got %v", domain, err)
		}
	}
}

// A domain of previews that shares its site with a name of the server is warned of.
func TestPreviewSharesSite(t *testing.T) {
	for _, test := range []struct{ domain, tls, name string }{
		{"sandboxes.example.com", "acme: {domains: [api.example.net, berth.example.com]}", "berth.example.com"},
		{"example.com", "acme: {domains: [berth.example.com.au]}", ""},
		{"sandboxes.example.net", "acme: {domains: [berth.example.com]}", ""},
		{"a.co.uk", "acme: {domains: [b.co.uk]}", ""},
		{"x.a.co.uk", "acme: {domains: [a.co.uk]}", "a.co.uk"},
		{"localhost", "acme: {domains: [berth.example.com]}", ""},
	} {
		c, err := readConfig(t, fmt.Sprintf("preview: {domain: %s}\nserver: {tls: {%s}}\n", test.domain, test.tls))
		if err != nil {
			t.Fatal(err)
		}
		got := c.sharedSite()
		if len(got) != min(1, len(test.name)) || test.name != "" && !strings.Contains(got[0],
			"berth.yaml:1: preview.domain shares the site ") ||
			test.name != "" && !strings.Contains(got[0], " this server's name "+test.name+",") {
			t.Errorf("%s with %s: got %q, want %q", test.domain, test.tls, got, test.name)
		}
	}
}
