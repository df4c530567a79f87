package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Versions lie beside each other, and the first page leads to the newest that is no pre-release.
func TestPublish(t *testing.T) {
	out := t.TempDir()
	docs := filepath.Join(out, "docs")
	for name, text := range map[string]string{"README.md": "# Pages\n\n## Start\n\n- [One](one.md): the first.\n",
		"one.md": "# One\n\nText.\n"} {
		if err := write(filepath.Join(docs, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	openAPI := filepath.Join(out, "openapi.json")
	if err := write(openAPI, []byte(`{"info":{"title":"x"},"components":{"schemas":{"A":{"type":"object"}}}}`)); err != nil {
		t.Fatal(err)
	}
	out = filepath.Join(out, "site")
	for _, version := range []string{"0.9.0", "0.10.0", "1.0.0-rc.1", "0.9.0"} {
		if err := publish(out, version, docs, openAPI); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "versions.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []release
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 3 || all[0].Version != "1.0.0-rc.1" ||
		all[1].Version != "0.10.0" || all[2].Path != "0.9.0/" {
		t.Errorf("got the versions %s: %v", text, err)
	}
	text, err = os.ReadFile(filepath.Join(out, "index.html"))
	if err != nil || !strings.Contains(string(text), `url=0.10.0/index.html"`) {
		t.Errorf("the first page is %s: %v", text, err)
	}
	for _, name := range []string{"0.9.0/one.html", "0.9.0/one.md", "0.10.0/assets/site.css", "1.0.0-rc.1/api/schemas/A.html"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	if err := publish(out, "../x", docs, openAPI); err == nil {
		t.Error("a version may lead out of the directory")
	}
}
