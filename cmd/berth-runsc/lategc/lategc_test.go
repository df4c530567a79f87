package lategc

import "testing"

func TestStarting(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"berth-runsc", "--root=sealed/runsc", "run", "--detach", "s"}, true},
		{[]string{"runsc-gofer", "--log-fd=3", "gofer", "--bundle=x"}, true},
		{[]string{"runsc-sandbox", "boot", "--setup-root", "s"}, true},
		{[]string{"berth-runsc", "exec", "s", "true"}, false},
		{[]string{"run"}, false},
	} {
		if got := starting(c.args); got != c.want {
			t.Errorf("%q: got %v", c.args, got)
		}
	}
}
