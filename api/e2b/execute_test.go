package e2b

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/berth-run/berth/guest/jupyter"
)

// Variables of one execution have their former values after it, or none, in each language that runs here.
func TestWithEnvironment(t *testing.T) {
	value := `it's "$(once)" \ \`
	for language, tt := range map[string]struct {
		argv  []string
		setUp string
		print string
	}{
		"bash": {[]string{"bash"}, "export OWN='of the sandbox'\nunset NONE\n", "echo \"$OWN|${NONE-unset}\"\n"},
		"python": {[]string{"python3", "-"},
			"import os; os.environ['OWN'] = 'of the sandbox'; os.environ.pop('NONE', None)\n",
			"print(os.environ['OWN'] + '|' + os.environ.get('NONE', 'unset'))\n"},
		"javascript": {[]string{"node", "-"},
			"globalThis.Deno = {env: {get: (n) => process.env[n], set: (n, v) => { process.env[n] = v }, " +
				"delete: (n) => { delete process.env[n] }}}; process.env.OWN = 'of the sandbox'; delete process.env.NONE;\n",
			"console.log(process.env.OWN + '|' + (process.env.NONE ?? 'unset'));\n"},
	} {
		if _, err := exec.LookPath(tt.argv[0]); err != nil {
			t.Logf("skipped: %v", err)
			continue
		}
		wrapped, err := withEnvironment(language, tt.print, map[string]string{"OWN": value, "NONE": "once"})
		if err != nil {
			t.Fatal(err)
		}
		before, code, after := jupyter.Unwrap(wrapped)
		cmd := exec.CommandContext(t.Context(), tt.argv[0], tt.argv[1:]...)
		cmd.Stdin = strings.NewReader(tt.setUp + before + code + after + tt.print + before + code + after + tt.print)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		once, later := value+"|once\n", "of the sandbox|unset\n"
		if want := once + later + once + later; err != nil || string(out) != want {
			t.Errorf("%s: got %q, %v, %s; want %q", language, out, err, errs.String(), want)
		}
	}
}
