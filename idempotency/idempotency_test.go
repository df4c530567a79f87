package idempotency_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/idempotency"
	"github.com/berth-run/berth/store/sqlite"
)

// The first record of a request remains. It changes only while it names the response that the caller knows.
func TestRecords(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := idempotency.New(db)
	const p berth.ProjectID = "proj_mine"
	find := func() *idempotency.Record {
		t.Helper()
		r, err := s.Find(t.Context(), p, "key")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := find(); r != nil {
		t.Errorf("before the request: got %+v", r)
	}
	first := idempotency.Record{Fingerprint: "a", Response: "resp_1"}
	for i, r := range []idempotency.Record{first, {Fingerprint: "b", Response: "resp_2"}} {
		if saved, err := s.Save(t.Context(), p, "key", r); err != nil || saved != (i == 0) {
			t.Errorf("record %d: saved %v, %v", i, saved, err)
		}
	}
	for _, was := range []berth.ResponseID{"resp_2", "resp_1"} {
		if diff := cmp.Diff(&first, find()); diff != "" {
			t.Errorf("before the change of %s (-want +got):\n%s", was, diff)
		}
		if err := s.Change(t.Context(), p, "key", was, func(r *idempotency.Record) { r.Server = "b" }); err != nil {
			t.Fatal(err)
		}
	}
	if r := find(); r.Server != "b" || r.Response != "resp_1" {
		t.Errorf("after the change: got %+v", r)
	}
}
