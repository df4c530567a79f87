package api_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store/sqlite"
)

// A heldDriver starts no sandbox until it may.
type heldDriver struct {
	*guestDriver
	may chan struct{}
}

func (d heldDriver) Start(ctx context.Context, id string) error {
	select {
	case <-d.may:
		return d.guestDriver.Start(ctx, id)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A sandbox that starts has no metrics yet, rather than some that are all zero.
func TestSandboxMetricsWhileItStarts(t *testing.T) {
	t.Parallel()
	driver := heldDriver{&guestDriver{t: t, boxes: map[string]*box{}}, make(chan struct{})}
	var stop context.CancelFunc
	h := newHouse(t, func(o *api.Options) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "held.db"), nil)
		check(t, err)
		log := slog.New(slog.DiscardHandler)
		record, err := audit.Open(t.TempDir(), log)
		check(t, err)
		bare := t.TempDir()
		o.Containers, err = container.New(container.Options{Store: db, Driver: driver, Seal: seal.New([32]byte{1}),
			Log: log, Audit: record, OpenFile: o.Files.Open, Template: func(string) (container.Template, error) {
				return container.Template{Template: sandbox.Template{Digest: "sha256:none", Path: bare}}, nil
			}})
		check(t, err)
		check(t, o.Containers.Start(t.Context()))
		t.Cleanup(func() { check(t, o.Containers.Close()); check(t, record.Close()); check(t, db.Close()) })
		withSandboxes(t, &stop)(o)
	})
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	mine := map[string]string{"X-API-Key": "sk-mine"}
	read := func(want int) {
		t.Helper()
		var all []struct {
			MemUsed    int64
			CPUUsedPct float64
		}
		_, text := h.sandboxCall("GET", "/sandboxes/"+s.ID+"/metrics", "", mine)
		check(t, json.Unmarshal([]byte(text), &all))
		var several struct{ Sandboxes map[string]any }
		_, text = h.sandboxCall("GET", "/sandboxes/metrics?sandbox_ids="+s.ID, "", mine)
		check(t, json.Unmarshal([]byte(text), &several))
		if len(all) != want || len(several.Sandboxes) != want || want > 0 && (all[0].MemUsed == 0 ||
			all[0].CPUUsedPct == 0) { // also in its first second
			t.Errorf("got %v and %v, want %d", all, several, want)
		}
	}
	read(0)
	close(driver.may)
	status, text := h.sandboxCall("POST", "/process.Process/List", "{}", map[string]string{"E2b-Sandbox-Id": s.ID,
		"E2b-Sandbox-Port": "49983", "X-Access-Token": s.Token, "Content-Type": "application/json"}) // waits for the start
	if status != http.StatusOK {
		t.Fatalf("got %d %s", status, text)
	}
	read(1)
}
