package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// newKernel is a call that installs a kernel in the user's home.
const newKernel = "import json, pathlib\nd = pathlib.Path.home() / '.local/share/jupyter/kernels/%s'\nd.mkdir(parents=True, exist_ok=True)\n(d / 'kernel.json').write_text(json.dumps(%s))"

// TestKernelOverTCP finds a kernel by its kernel.json. It listens on ports, as those do that
// have no Unix sockets.
func TestKernelOverTCP(t *testing.T) {
	s := newServerWith(t, "shell: {timeout: 10s}\n")
	own := fmt.Sprintf(newKernel, "mine",
		`{"argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "javascript"}`)
	first, _ := runCode(t, s, "", own)
	_, all := runCode(t, s, first.ID, "%%kernel mine\nimport socket\nx = 41", "%%kernel mine\nx + 1",
		"%%kernel mine\nimport time\ntime.sleep(600)", "%%kernel mine\nx + 2", "'x' in globals()")
	for i, want := range map[int]string{1: "42", 3: "43", 4: "False"} {
		if got := all[i].logs(); got != want {
			t.Errorf("call %d: %q, want %q", i, got, want)
		}
	}
	if all[2].Berth.Outcome != "timeout" {
		t.Errorf("code that takes too long: %+v", all[2])
	}
}

// TestDeno runs JavaScript with the program BERTH_TEST_DENO, in the kernel that the template
// full has.
func TestDeno(t *testing.T) {
	path := os.Getenv("BERTH_TEST_DENO")
	if path == "" {
		t.Skip("skipped: BERTH_TEST_DENO does not name the program deno")
	}
	s := newServerWith(t, "shell: {timeout: 10s}\n")
	own := fmt.Sprintf(newKernel, "javascript",
		`{"argv": ["/mnt/data/deno", "jupyter", "--kernel", "--conn", "{connection_file}"], "language": "typescript", "env": {"NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}}`)
	first, all := runCode(t, s, "", own)
	if out, errs, err := s.berth("cp", path, all[0].Container+":/mnt/data/deno"); err != nil {
		t.Fatal(out, errs, err)
	}
	_, all = runCode(t, s, first.ID, "!chmod +x /mnt/data/deno", "%%kernel javascript\nlet x: number = 41",
		"%%kernel javascript\nx + 1", "%%kernel javascript\nconsole.log('hi', x)",
		"%%kernel javascript\nthrow new Error('bad')", "%%kernel javascript\nwhile (true) {}",
		"%%kernel javascript\nx + 2")
	for i, c := range all {
		t.Logf("%d: %s %+v %q", i, c.Container, c.Berth, c.logs())
	}
	if got := all[2].logs(); got != "42" {
		t.Errorf("state: %q", got)
	}
	if got := all[3].logs(); strings.TrimSpace(got) != "hi 41" {
		t.Errorf("output: %q", got)
	}
	if got := all[4].logs(); all[4].Berth.Outcome != "error" || !strings.Contains(got, "Error: bad") {
		t.Errorf("an exception: %+v, %q", all[4].Berth, got)
	}
}
