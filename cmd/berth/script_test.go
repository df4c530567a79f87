package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
	"github.com/berth-run/berth/server/embedded"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"berth": main})
}

// TestScripts runs testdata/script/*.txtar: the command line, with servers on the
// unsafe-local driver, so that they run anywhere.
func TestScripts(t *testing.T) {
	if _, err := embedded.Extract(t.TempDir()); err != nil {
		t.Skipf("skipped: %v", err)
	}
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			addr := freeport.Addr(t)
			env.Setenv("DOCS", docs)
			env.Setenv("METRICS", freeport.Addr(t))
			env.Setenv("ADDR", addr)
			env.Setenv("BERTH_URL", "http://"+addr)
			env.Setenv("BERTH_STATE", env.WorkDir+"/state")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("BERTH_BUILD_TEMPLATE", "never")
			env.Setenv("XDG_CONFIG_HOME", "")
			env.Defer(func() { destroyAll(t, env.WorkDir+"/state") })
			return os.WriteFile(env.WorkDir+"/local.yaml", []byte("driver: unsafe-local\n"), 0o600)
		},
		Condition: func(name string) (bool, error) {
			if name != "archives" {
				return false, fmt.Errorf("no condition %q", name)
			}
			return archives(t), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await, "post": post},
	})
}

// archives reports whether the guest in this binary can archive its sandbox. Tests may run with an
// old guest.
func archives(t *testing.T) bool {
	programs, err := embedded.Extract(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	guest, err := os.ReadFile(programs.Guest)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(guest, []byte("GET /archive"))
}

// post sends JSON to a path of the script's server: post PATH BODY.
func post(ts *testscript.TestScript, _ bool, args []string) {
	resp, err := http.Post(ts.Getenv("BERTH_URL")+args[0], "application/json", strings.NewReader(args[1]))
	ts.Check(err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		ts.Fatalf("%s", resp.Status)
	}
}

// await waits until the script's server responds.
func await(ts *testscript.TestScript, _ bool, _ []string) {
	for range 500 {
		resp, err := http.Get(ts.Getenv("BERTH_URL") + "/healthz")
		if err == nil {
			resp.Body.Close()
			return
		}
		if err := ts.Exec("sleep", "0.02"); err != nil {
			ts.Fatalf("%v", err)
		}
	}
	ts.Fatalf("nothing answers on %s", ts.Getenv("ADDR"))
}

// destroyAll destroys the sandboxes that a script's servers left.
func destroyAll(t *testing.T, state string) {
	d, err := driver.Open(state, &config.Config{Driver: "unsafe-local"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Error(err)
		return
	}
	ids, err := d.List(context.Background())
	for _, id := range ids {
		err = errors.Join(err, d.Destroy(context.Background(), id))
	}
	if err != nil {
		t.Error(err)
	}
}
