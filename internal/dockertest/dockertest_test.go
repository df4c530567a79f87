package dockertest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestHost(t *testing.T) {
	host := Host(t)
	if again := Host(t); again != host {
		t.Errorf("the second call: got %s, want %s", again, host)
	}
	conn, err := net.Dial("unix", strings.TrimPrefix(host, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestStart(t *testing.T) {
	var host string
	t.Run("Engine", func(t *testing.T) {
		host = Start(t, "--label=of=test")
		if host == Host(t) {
			t.Error("got the shared engine")
		}
	})
	if host == "" {
		t.Skip("skipped: no Docker Engine")
	}
	dir := filepath.Dir(strings.TrimPrefix(host, "unix://"))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s after the engine's end: got %v, want it removed", dir, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("still mounted below %s", dir)
	}
}

// The directory of an engine whose test was killed is removed at the next start.
func TestStale(t *testing.T) {
	cache := t.TempDir()
	stale, used := filepath.Join(cache, prefix+"stale"), filepath.Join(cache, prefix+"used")
	for _, dir := range []string{stale, used} {
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f, err := lockDir(used)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	removeStale(cache)
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the stale directory: got %v, want it removed", err)
	}
	if _, err := os.Stat(used); err != nil {
		t.Errorf("the directory in use: %v", err)
	}
}
