package console

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// TestHealth: faults come first with their first step, keys have no values, and all names are text.
func TestHealth(t *testing.T) {
	const hostile = `x<img src=x onerror=alert(1)>`
	usd := func(v berth.Amount) *berth.Cost { return &berth.Cost{Value: v, Currency: "usd"} }
	api := &stubAPI{answers: map[string]any{
		"/v1/organization/status": berth.ServerStatus{Problems: []string{"the database " + hostile},
			Disk: []berth.DiskStatus{{Area: "files", Bytes: 100, FreeBytes: 1, Low: true}, {Area: "audit", Bytes: 90, FreeBytes: 80}},
			Upstreams: []berth.Upstream{{Name: hostile, Circuit: "open", Failed: 3, Turns: 4,
				Keys: []berth.UpstreamKey{{Name: "KEY_A", RestSeconds: 30}, {Name: "KEY_B"}}}},
			Pools: []berth.PoolStatus{{MemoryLimit: "1g", Hits: 10, Misses: 10}}},
		"/v1/organization/spend": listed(map[string]any{"project_id": "proj_1", "used": usd(95), "limit": usd(100)}),
		"/v1/responses":          listed(),
	}}
	page := api.page(t, "health")
	for _, want := range []string{"the database x&lt;img", "1 B free of 100 B: volume of files", "3 of 4 turns failed",
		"10 of 20 containers did not start from the pool of the default template (1g)", "spent this month: proj_1", "Backup: none is known", "6 to look at", "KEY_A", "in 30 s",
		"Resting", "berth restore /backup"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(page, "<img src=x") {
		t.Error("the page has the markup of a name")
	}
	if first, ok := strings.CutPrefix(page[strings.Index(page, `<td class="st">`):], `<td class="st"><span class="state bad">`); !ok {
		t.Errorf("the first row is no alert that fires: %.100s", first)
	}
	now := time.Now()
	p := healthPage{Server: berth.ServerStatus{LastBackup: &berth.BackupStatus{At: now.Add(-time.Hour).Unix(), Files: 3},
		Upstreams: []berth.Upstream{{Name: "a", Circuit: "closed"}}}}
	if p.fill(nil, now); p.Firing != 0 || p.Backup.Old {
		t.Errorf("got %+v of a healthy server", p.Alerts)
	}
	p.Server.LastBackup.At = now.Add(-8 * 24 * time.Hour).Unix()
	p.Alerts, p.Firing = nil, 0
	if p.fill(nil, now); p.Firing != 1 || !p.Backup.Old {
		t.Errorf("got %+v with an old backup", p.Alerts)
	}
}
