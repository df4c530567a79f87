package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/image"
)

// What a server would warn of is known without a server.
func TestStateWarnings(t *testing.T) {
	state := t.TempDir()
	c, err := configOf(t, "template: nope\nstate: "+state+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := StateWarnings(c); len(got) != 0 {
		t.Errorf("without a state directory: got %q", got)
	}
	if err := os.Mkdir(filepath.Join(state, "images"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := StateWarnings(c); len(got) != 1 || !strings.Contains(got[0],
		`berth.yaml:1: template "nope" does not exist in `+state) {
		t.Errorf("got %q", got)
	}
	if c.Template = image.Base().Name; len(StateWarnings(c)) != 1 {
		t.Error("a named template that was not built is not warned of")
	}
	if c, err = configOf(t, "server: {listen: '0.0.0.0:8080'}\nstate: "+state+"\n"); err != nil {
		t.Fatal(err)
	}
	if got := StateWarnings(c); len(got) != 1 || !strings.Contains(got[0],
		"berth.yaml:1: server.listen needs an API key before the first start") {
		t.Errorf("got %q", got)
	}
}

// A driver or a database that cannot be used here is warned of, because it may be there at the start.
func TestMachineWarnings(t *testing.T) {
	state := t.TempDir()
	for text, want := range map[string]string{
		"driver: docker\ndocker: {host: 'unix:///nonexistent'}\n":        "berth.yaml:1: driver cannot be used on this machine: engine: ",
		"driver: microvm\nmicrovm: {qemu: /nonexistent}\n":               "berth.yaml:1: driver cannot be used on this machine: qemu: ",
		"store: postgres://berth:secret@127.0.0.1:1/x?sslmode=disable\n": "berth.yaml:1: store.url cannot be used on this machine: store: ",
		"driver: unsafe-local\n":                                         "",
	} {
		c, err := configOf(t, text+"state: "+state+"\n")
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(MachineWarnings(t.Context(), c), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
