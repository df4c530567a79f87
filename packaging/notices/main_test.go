package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each module of a program, Go and each embedded file has its licence.
func TestNotices(t *testing.T) {
	program := filepath.Join(t.TempDir(), "oci")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../oci").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	env, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	root, cache, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	var out strings.Builder
	if err := write(&out, root, cache, "../../console/assets/vendor:../../internal/tokens", []string{program}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"==== Go ====\n", "==== github.com/google/go-containerregistry v", "Apache License",
		"==== embedded files ====\n\ninter-",
		"==== embedded files ====\n\nvocabularies.LICENSE"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%.500s", want, out.String())
		}
	}
}

func TestEscape(t *testing.T) {
	if got, want := escape("github.com/BurntSushi/toml"), "github.com/!burnt!sushi/toml"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
