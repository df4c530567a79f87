package connect

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// Each client gets the address and the key. Lines for a shell keep hostile names as one word, and files are valid.
func TestClients(t *testing.T) {
	s := Server{URL: "https://berth.example", Key: "sk-berth-1", Model: `it's "$(a)" <model>`}
	all := s.Clients()
	names := ""
	for _, c := range all {
		names += c.Name + " "
		lines := ""
		for _, p := range c.Parts {
			lines += p.Text
			if strings.HasSuffix(p.File, ".json") && !json.Valid([]byte(p.Text)) {
				t.Errorf("%s: not JSON: %s", c.Name, p.Text)
			}
		}
		if !strings.Contains(lines, s.URL) || !strings.Contains(lines, s.Key) {
			t.Errorf("%s: no address or no key in %s", c.Name, lines)
		}
	}
	if want := "Claude Code codex Cursor VS Code opencode Open WebUI OpenAI's SDKs Anthropic's SDKs "; names != want {
		t.Errorf("got %s, want %s", names, want)
	}
	out, err := exec.Command("sh", "-c", all[0].Parts[0].Text+"\n"+`printf %s "$ANTHROPIC_MODEL"`).Output()
	if err != nil || string(out) != s.Model {
		t.Errorf("a shell reads the model as %q: %v", out, err)
	}
}

// Without keys, no line has one.
func TestNoKey(t *testing.T) {
	for _, c := range (Server{URL: "http://127.0.0.1:8080", Model: "coder"}).Clients() {
		for _, p := range c.Parts {
			if strings.Contains(p.Text, "Bearer") || strings.Contains(p.Text, Key) {
				t.Errorf("%s has a key: %s", c.Name, p.Text)
			}
		}
	}
}
