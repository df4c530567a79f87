package server

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store/sqlite"
)

// Batches leave half of a project's limits to its other requests.
func TestPace(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	n := func(v int64) *int64 { return &v }
	q := project.NewQuota(project.QuotaOptions{Objects: db, Usages: db, Limits: map[berth.ProjectID]berth.Limits{
		"proj_a": {RequestsPerMinute: n(10), Responses: n(5)}, "proj_one": {RequestsPerMinute: n(1), Responses: n(1)}}})
	for _, c := range []struct {
		project  berth.ProjectID
		free     int // requests that the batches may make concurrently
		requests int
	}{{"proj_a", 6, 2}, {"proj_one", 1, 1}} {
		for i := range c.free {
			now, err := pace(t.Context(), q, c.project)
			if err != nil || now.Wait != 0 || now.Requests != c.requests {
				t.Fatalf("%s, request %d: got %+v, %v", c.project, i, now, err)
			}
			end, err := q.Begin(t.Context(), berth.Caller{Project: c.project}, 1)
			if err != nil {
				t.Fatal(err)
			}
			end(1)
		}
		if now, err := pace(t.Context(), q, c.project); c.project == "proj_a" && (err != nil || now.Wait <= 0 ||
			now.Wait > time.Minute/2) {
			t.Errorf("%s: got %+v, %v, want to wait", c.project, now, err)
		}
	}
	if now, err := pace(t.Context(), q, "proj_free"); err != nil || now.Wait != 0 || now.Requests < 1000 {
		t.Errorf("without limits: got %+v, %v", now, err)
	}
	if _, err := project.New(project.Options{Objects: db}).Archive(t.Context(), "proj_gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := pace(t.Context(), q, "proj_gone"); !errors.As(err, new(*berth.Error)) {
		t.Errorf("an archived project: got %v", err)
	}
}
