package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestUser runs the tests of this package as another user than root.
func TestUser(t *testing.T) {
	drivertest.AsUser(t, "^(TestPosture|TestCrash|TestStartFails|TestStartGivenUp|TestHostRestarted)$")
}

// TestUserDriver runs the suite as another user than root.
func TestUserDriver(t *testing.T) {
	parts := "/^(Lifecycle|Limits|Mounts|Egress)$"
	if longtest.Enabled() {
		parts = ""
	}
	drivertest.AsUser(t, "^TestDriver$"+parts)
}

// processesOf returns the ids of all processes of a sandbox, the sentry first, or the warden
// without root.
func processesOf(t *testing.T, s instance) []int {
	t.Helper()
	if g, ok := s.wall.(*group); ok {
		pids, err := g.cgroup.Procs()
		if err != nil {
			t.Fatal(err)
		}
		sentry, _, err := g.sentry()
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(pids, func(a, b int) int {
			return map[bool]int{true: -1}[a == sentry] - map[bool]int{true: -1}[b == sentry]
		})
		return pids
	}
	first, alive, err := s.wall.(*warden).find()
	if err != nil {
		t.Fatal(err)
	}
	if !alive {
		return nil
	}
	all := []int{first}
	for i := 0; i < len(all); i++ {
		all = append(all, childrenOf(t, all[i])...)
	}
	return all
}

// childrenOf returns the processes whose parent is parent.
func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range entries {
		raw, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has just ended
		}
		f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && len(f) > 1 && f[1] == fmt.Sprint(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}
