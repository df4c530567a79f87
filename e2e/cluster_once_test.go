package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/freeport"
)

// TestClusterOnce sends what may happen once only to all servers: requests with the same Idempotency-Key, at
// once and one after the other, and responses in the same conversation. A server with a copy of another one's
// state directory is refused.
func TestClusterOnce(t *testing.T) {
	f := newFleet(t, "1m")
	ctx := within(t, 4*time.Minute)
	var mu sync.Mutex
	var all sync.WaitGroup
	var ids []string
	for i := range 9 {
		all.Go(func() {
			var c struct{ ID string }
			if _, err := call(ctx, "POST", f.servers[i%3].url+"/v1/containers", "at-once",
				map[string]any{"name": "once"}, &c); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, c.ID)
		})
	}
	all.Wait()
	if len(slices.Compact(ids)) != 1 {
		t.Errorf("requests with one key made the containers %v", ids)
	}

	// Requests for a response that is not stored wait for the server that creates it.
	ids = nil
	for _, s := range f.servers {
		all.Go(func() {
			once := task("echo unstored >> " + f.counter + "; sleep 5")
			once["background"], once["store"] = false, false
			var got memberAnswer
			if err := patiently(ctx, "POST", s.url+"/v1/responses", "unstored", once, &got); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, got.ID)
		})
	}
	all.Wait()
	if f.lines()["unstored"] != 1 || len(slices.Compact(ids)) != 1 {
		t.Errorf("a repeated request that is not stored: %v, ids %v", f.lines(), ids)
	}

	// A conversation has one writer.
	var conversation struct{ ID string }
	if _, err := call(ctx, "POST", f.servers[0].url+"/v1/conversations", "", map[string]any{},
		&conversation); err != nil {
		t.Fatal(err)
	}
	first, next := task("sleep 600"), map[string]any{"model": "scripted", "input": "hello",
		"conversation": conversation.ID}
	first["conversation"] = conversation.ID
	var r memberAnswer
	if _, err := call(ctx, "POST", f.servers[1].url+"/v1/responses", "", first, &r); err != nil {
		t.Fatal(err)
	}
	for i, s := range f.servers {
		if status, err := call(ctx, "POST", s.url+"/v1/responses", "", next, nil); status != http.StatusConflict ||
			err == nil || !strings.Contains(err.Error(), "conversation_locked") {
			t.Errorf("server %d, while a response is in the conversation: status %d, %v", i, status, err)
		}
	}
	if _, err := call(ctx, "POST", f.servers[2].url+"/v1/responses/"+r.ID+"/cancel", "", nil, nil); err != nil {
		t.Error(err)
	}
	f.servers[0].waitUntil("another server may write", func() bool {
		status, err := call(ctx, "POST", f.servers[0].url+"/v1/responses", "", next, nil)
		return status == http.StatusOK && err == nil
	})

	// A copy of a state directory has the id of the original.
	text, err := os.ReadFile(f.servers[0].args[1])
	if err != nil {
		t.Fatal(err)
	}
	listen := freeport.Addr(t)
	config := strings.Split(string(text), "cluster:")[0] + "cluster: {listen: \"" + listen + "\", lease: 2s}\n"
	copied := prepareServer(t, t.TempDir(), config)
	for _, name := range []string{"seal.key", "node_id"} {
		text, err := os.ReadFile(filepath.Join(f.servers[0].state, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(copied.state, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	copied.refuses("another server has the id of this one", append([]string{"serve", "--listen", "127.0.0.1:0",
		"--state", copied.state}, copied.args...)...)
	f.verify()
}
