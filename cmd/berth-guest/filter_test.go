package main

import (
	"os"
	"os/exec"
	"testing"
)

// A filtered guest cannot make the calls that a filter must refuse.
func TestFilter(t *testing.T) {
	const stage = "BERTH_TEST_FILTERED"
	switch {
	case os.Getenv(filterEnv) != "":
		t.Fatal(filter())
	case os.Getenv(stage) != "":
		if err := filtered(); err != nil {
			t.Error(err)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can filter itself and keep its privileges")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFilter$")
	cmd.Env = append(os.Environ(), filterEnv+"=1", stage+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
