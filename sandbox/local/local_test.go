package local

import (
	"testing"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

func TestDriver(t *testing.T) {
	guest := drivertest.Guest(t)
	drivertest.Run(t, drivertest.Harness{
		Open: func(tb testing.TB, stateDir string) sandbox.Driver {
			d, err := Open(Options{Name: Name, StateDir: stateDir, GuestPath: guest})
			if err != nil {
				tb.Fatal(err)
			}
			return d
		},
	})
}

func TestOpenRefusesOtherNames(t *testing.T) {
	for _, name := range []string{"", "local", "gvisor"} {
		if _, err := Open(Options{Name: name, StateDir: t.TempDir(), GuestPath: "/bin/true"}); err == nil {
			t.Errorf("Open with name %q: got no error", name)
		}
	}
}
