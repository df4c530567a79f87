package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCopiedState starts a copy of the state directory beside its original, as one checks
// a backup. The copy says of the original's containers that they ended with their host,
// and nothing that is done there touches those of the original, nor its volumes.
func TestCopiedState(t *testing.T) {
	needsLocalState(t)
	s := newServer(t)
	p := &planted{server: s}
	volume := p.create("/volumes", `{"name":"shelf","max_bytes":16777216}`)
	id := p.create("/containers", `{"name":"work","berth":{"volumes":[{"name":"shelf"}]}}`)
	p.shell(id, "echo precious >/mnt/data/file; echo kept >/mnt/volumes/shelf/file; sync")
	other := p.create("/containers", `{"name":"other"}`)
	p.shell(other, "echo precious >/mnt/data/file")

	s.kill() // its containers live on
	dup := &server{t: t, state: filepath.Join(t.TempDir(), "copy"), args: s.args, log: &logBuffer{}}
	if out, err := exec.Command("cp", "-a", s.state, dup.state).CombinedOutput(); err != nil {
		// Encrypted blobs cannot be copied, nor need they be.
		if _, statErr := os.Stat(filepath.Join(dup.state, "berth.db")); statErr != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
	s.start()
	dup.start()
	t.Cleanup(dup.close)

	c := &planted{server: dup}
	for _, id := range []string{id, other} {
		c.want("a container of the copy", c.call("GET", "/containers/"+id, ""), `"reason":"host"`)
		if out, errs, err := dup.berth("exec", id, "--", "true"); err == nil || !strings.Contains(errs,
			"failure of its machine") {
			t.Errorf("a command in a container of the copy: got %q, %v, %s", out, err, errs)
		}
	}
	c.call("DELETE", "/containers/"+id, "")
	own := c.create("/containers", `{"name":"own","berth":{"volumes":[{"name":"shelf"}]}}`)
	c.want("a volume of the copy", c.shell(own, "cat /mnt/volumes/shelf/file; echo changed >/mnt/volumes/shelf/file"),
		"kept")
	c.call("DELETE", "/containers/"+own, "")
	c.call("DELETE", "/volumes/"+volume, "")
	dup.kill()
	dup.start()

	for _, id := range []string{id, other} {
		p.want("a file of the original", p.shell(id, "cat /mnt/data/file"), "precious")
		p.want("a container of the original", p.call("GET", "/containers/"+id, ""), `"status":"running"`)
	}
	p.want("a volume of the original", p.shell(id, "cat /mnt/volumes/shelf/file"), "kept")
	if log := dup.log.String(); !strings.Contains(log, "the state directory is a copy") {
		t.Errorf("the copy's log does not report that it is a copy:\n%s", log)
	}

	// The same start by another path is no copy.
	s.kill()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(s.state, link); err != nil {
		t.Fatal(err)
	}
	s.state = link
	s.start()
	p.want("a file after a start by another path", p.shell(id, "cat /mnt/data/file"), "precious")
	p.call("DELETE", "/containers/"+id, "")
	p.call("DELETE", "/volumes/"+volume, "") // which stays mounted else
	if resp, err := http.Get(s.url + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the server is not well: %v", err)
	}
}
