package e2e

import (
	"os"
	"os/exec"
	"testing"
)

// TestNode runs the tests of the clients from npm (e2e/node/*.test.mjs).
func TestNode(t *testing.T) {
	if _, err := os.Stat("node/node_modules/openai"); err != nil {
		t.Skip("the npm clients are not installed: run make test, which installs them")
	}
	_, upstream := newUpstream(t)
	s := newServer(t, upstream...)
	cmd := exec.Command("npm", "test", "--silent")
	cmd.Dir = "node"
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+s.url+"/v1", "OPENAI_API_KEY=none", "BERTH_BIN="+binary(t), "BERTH_STATE="+s.state)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
