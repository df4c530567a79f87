package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

// TestSession: a chain leaves one server with its container, is done again there, and
// continues at another with the files that it had.
func TestSession(t *testing.T) {
	here := newServer(t)
	first, err := here.client().Responses.New(t.Context(),
		shellTask(fence("echo one > made; mkdir -p d; ln -s ../made d/link; chmod 700 made")))
	if err != nil {
		t.Fatal(err)
	}
	task := shellTask(fence("echo two >> made; cat made"))
	task.PreviousResponseID = openai.String(first.ID)
	last, err := here.client().Responses.New(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	chain := filepath.Join(t.TempDir(), "chain.tar")
	if _, said, err := here.berth("session", "export", last.ID, "-o", chain); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if told, said, err := here.berth("session", "replay", last.ID); err != nil || !strings.Contains(told,
		"2 responses, no difference") {
		t.Errorf("replay: got %s%s, %v", told, said, err)
	}

	there := newServer(t)
	told, said, err := there.berth("session", "import", chain)
	if err != nil || said != "" {
		t.Fatalf("import: got %s, %v", said, err)
	}
	task = shellTask(fence("cat made d/link; stat -c %a made; id -un"))
	task.PreviousResponseID = openai.String(strings.TrimSpace(told))
	on, err := there.client().Responses.New(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if got := stdouts(on); len(got) != 1 || !strings.HasPrefix(got[0], "one\ntwo\none\ntwo\n700\n") {
		t.Errorf("at the other server: got %q", got)
	}
	if told, said, err := there.berth("session", "replay", on.ID); err != nil || !strings.Contains(told,
		"3 responses, no difference") {
		t.Errorf("replay there: got %s%s, %v", told, said, err)
	}
}
