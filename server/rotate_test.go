package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A server that serves rotates its key. What was stored is there, also at its next start, and the former key is refused.
func TestRotateServing(t *testing.T) {
	for name, url := range map[string]string{"sqlite": "", "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text := "driver: unsafe-local\ncontainers: {pool: 0}\n"
			if url != "" {
				text += "store: " + url + "\n"
			}
			s, web := testServer(t, dir, text)
			defer destroyAll(t, dir)
			former, err := os.ReadFile(filepath.Join(dir, "seal.key"))
			if err != nil {
				t.Fatal(err)
			}
			content := strings.Repeat("content ", 1000)
			file, err := upload(web.URL, content)
			if err != nil {
				t.Fatal(err)
			}
			container, err := idOf(send("POST", web.URL+"/v1/containers", "application/json",
				strings.NewReader(`{"name":"mine"}`)))
			if err != nil {
				t.Fatal(err)
			}
			there := func(base string) {
				t.Helper()
				if got, err := send("GET", base+"/v1/files/"+file+"/content", "", nil); err != nil || got != content {
					t.Errorf("the file: got %d bytes, %v", len(got), err)
				}
				list, err := send("GET", base+"/v1/containers?name=mine", "", nil)
				if err != nil || !strings.Contains(list, container) {
					t.Errorf("the container by its name: got %.200s, %v", list, err)
				}
			}
			var ended atomic.Bool
			var load sync.WaitGroup
			for n := range 3 {
				load.Go(func() {
					for i := 0; !ended.Load(); i++ {
						id, err := idOf(send("POST", web.URL+"/v1/responses", "application/json",
							strings.NewReader(fmt.Sprintf(`{"model":"scripted","input":"number %d."}`, i))))
						if err == nil {
							_, err = send("GET", web.URL+"/v1/responses/"+id, "", nil)
						}
						if err != nil {
							t.Errorf("client %d, during a rotation: %v", n, err)
							return
						}
					}
				})
			}
			for range 2 {
				if running, err := state.RotateSealKey(t.Context(), dir, &config.Config{}, slog.New(slog.DiscardHandler)); err != nil ||
					!running {
					t.Errorf("got %t, %v", running, err)
				}
				there(web.URL)
			}
			ended.Store(true)
			load.Wait()
			web.Close()
			s.Close(context.WithoutCancel(t.Context()))
			again, other := testServer(t, dir, text)
			there(other.URL)
			other.Close()
			again.Close(context.WithoutCancel(t.Context()))
			if err := os.WriteFile(filepath.Join(dir, "seal.key"), former, 0o600); err != nil {
				t.Fatal(err)
			}
			startsNot(t, dir, text, "other keys")
		})
	}
}

// Servers of a cluster cannot rotate their key while they run.
func TestRotateCluster(t *testing.T) {
	b := &base{Options: Options{Config: &config.Config{}}}
	b.Config.Cluster.Listen = "127.0.0.1:1"
	if err := b.rotateSealKey(); err == nil || !strings.Contains(err.Error(), "stop all of them") {
		t.Errorf("got %v", err)
	}
}
