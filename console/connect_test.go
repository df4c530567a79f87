package console

import (
	"bytes"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/connect"
)

// The page has the lines of each client as text, with a button that copies all of a part.
func TestConnect(t *testing.T) {
	s := connect.Server{URL: "http://127.0.0.1:8080", Key: connect.Key, Model: `<img src=x onerror="alert(1)">`}
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "connect", &page{Data: &connectPage{s.Clients(), true}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Claude Code", "codex", "Cursor", "VS Code", "opencode", "Open WebUI", connect.Key,
		"ANTHROPIC_BASE_URL=http://127.0.0.1:8080", "claude mcp add --transport http berth http://127.0.0.1:8080/mcp"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	parts := 0
	for _, c := range s.Clients() {
		parts += len(c.Parts)
	}
	if got := strings.Count(b.String(), "data-copy="); got != parts {
		t.Errorf("%d buttons for %d parts", got, parts)
	}
	if strings.Contains(b.String(), "<img src=x") {
		t.Error("the page has the name of a model as HTML")
	}
}
