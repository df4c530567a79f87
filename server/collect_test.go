package server

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/s3test"
)

// Collection removes old contents without a record, and nothing else: not those of files, not
// recent ones, and nothing once the bucket is another state's.
func TestCollectOrphans(t *testing.T) {
	s3, state := s3test.Start(t), t.TempDir()
	at := s3.Bucket("berth")
	s, web := testServer(t, state, onBucket(at))
	id, err := upload(web.URL, "kept")
	if err != nil {
		t.Fatal(err)
	}
	orphans := []string{"files/proj_default/file-lost", "uploads/proj_default/part_lost",
		"skills/proj_default/skill_lost", "snapshots/proj_default/snap_lost"}
	for _, key := range orphans {
		path := s3.Path("berth", key)
		if err := os.MkdirAll(path[:strings.LastIndex(path, "/")], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (n int) {
		objects := s3.Objects("berth")
		for _, key := range orphans {
			if slices.Contains(objects, key) {
				n++
			}
		}
		return n
	}
	if err := s.data.collect(t.Context(), time.Now().Add(-time.Hour)); err != nil || left() != len(orphans) {
		t.Errorf("recent orphans: got %v, %d left, want %d", err, left(), len(orphans))
	}
	later := time.Now().Add(time.Hour)
	owner := s3.Path("berth", "berth-owner.json")
	was, err := os.ReadFile(owner)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(owner, []byte(`{"owner":"state_other"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.data.collect(t.Context(), later); err == nil || left() != len(orphans) {
		t.Errorf("with another owner: got %v, %d left, want an error and %d", err, left(), len(orphans))
	}
	if err := os.WriteFile(owner, was, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.data.collect(t.Context(), later); err != nil || left() != 0 {
		t.Errorf("old orphans: got %v, %d left, want 0", err, left())
	}
	if got, err := send("GET", web.URL+"/v1/files/"+id+"/content", "", nil); err != nil || got != "kept" {
		t.Errorf("the file: got %q, %v", got, err)
	}
}
