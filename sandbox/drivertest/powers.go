package drivertest

import (
	_ "embed"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
)

//go:embed powers.pl
var powersScript string

// takePowers tries system calls for user namespaces, devices, modules and more that no command
// needs, as a user and as root.
func (s attacks) takePowers(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: the script uses the system calls of x86-64")
	}
	if s.Unfiltered {
		t.Skip("skipped: the machine filters system calls")
	}
	b := Start(t, s.open(t), sandbox.Spec{ID: "powers", Template: s.Template})
	if err := b.Client.WriteFile(t.Context(), "/mnt/data", "powers.pl", "",
		strings.NewReader(powersScript)); err != nil {
		t.Fatal(err)
	}
	for _, who := range s.users() {
		script := who + "perl powers.pl"
		if r := b.ShTimeout(script, time.Minute*b.patience); r.Stdout != "done\n" {
			t.Errorf("%s: got %+v, want only %q", script, r, "done\n")
		}
	}
	for _, script := range []string{"unshare -U true", "unshare -Ur true", "sudo unshare -U true",
		"unshare -Urnm sh -c 'ip link add type dummy || mount -t tmpfs x /mnt'"} {
		if r := b.Sh(script); r.Code == 0 {
			t.Errorf("%s: got no error", script)
		}
	}
	b.Answers()
}
