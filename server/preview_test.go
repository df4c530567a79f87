package server

import (
	"strings"
	"testing"
)

func TestPreviewConfig(t *testing.T) {
	c, err := readConfig(t, "preview: {domain: Preview.Example.com}\n")
	if err != nil || c.Preview.Domain != "preview.example.com" {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, domain := range []string{".example.com", "*.example.com", "127.0.0.1", "example.com:80", "a_b.example", strings.Repeat("a.", 100) + "example"} {
		if _, err := readConfig(t, "preview: {domain: '"+domain+"'}\n"); err == nil || !strings.Contains(err.Error(), "preview.domain") {
			t.Errorf("%s: got %v", domain, err)
		}
	}
}
