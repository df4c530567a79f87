package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Old objects end once, also if the server is killed during it, and held ones stay.
func TestRetentionKilled(t *testing.T) {
	s := newServerWith(t, endUsers)
	call := func(method, path string, body any, into any) int {
		t.Helper()
		got, err := s.ask("", "", method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		if into != nil {
			if err := json.Unmarshal([]byte(got.text), into); err != nil {
				t.Fatalf("%s %s: got %d %s", method, path, got.status, got.text)
			}
		}
		return got.status
	}
	const responses = 130 // more than a batch
	var ids []string
	for range responses {
		var made struct{ ID string }
		call("POST", "/v1/responses", map[string]any{"model": "scripted", "input": "x"}, &made)
		ids = append(ids, made.ID)
	}
	held, ended := ids[responses/2], slices.Delete(slices.Clone(ids), responses/2, responses/2+1)
	if out, errs, err := s.berth("hold", "create", "--reason", "a case", "--object", held); err != nil {
		t.Fatalf("%s%s %v", out, errs, err)
	}
	if status := call("DELETE", "/v1/responses/"+held, nil, nil); status != 409 {
		t.Errorf("the held response: got %d, want 409", status)
	}
	if out, errs, err := s.berth("retention", "set", "responses=1s", "--yes"); err != nil {
		t.Fatalf("%s%s %v", out, errs, err)
	}
	exists := func(id string) bool { return call("GET", "/v1/responses/"+id, nil, nil) == 200 }
	s.kill() // a start sweeps
	s.start()
	s.waitUntil("the first response has ended", func() bool { return !exists(ids[0]) })
	s.kill()
	s.start()
	type record struct {
		ID          string
		Count       int
		CompletedAt *int64 `json:"completed_at"`
		IDs         []string
		Digest      string
	}
	var records []record
	s.waitUntil("the last response has ended", func() bool {
		var list struct{ Data []record }
		call("GET", "/v1/retention/records", nil, &list)
		records = list.Data
		sum := 0
		for _, r := range records {
			if r.CompletedAt == nil {
				return false
			}
			sum += r.Count
		}
		return sum >= len(ended)
	})
	var recorded []string
	for i := range records {
		call("GET", "/v1/retention/records/"+records[i].ID, nil, &records[i])
		recorded = append(recorded, records[i].IDs...)
	}
	slices.Sort(recorded)
	slices.Sort(ended)
	if !slices.Equal(recorded, ended) {
		t.Errorf("the records have %d responses, want %d", len(recorded), len(ended))
	}
	if !exists(held) {
		t.Error("the held response is gone")
	}
	out, errs, err := s.berth("audit", "log", "--state", s.state, "--json")
	if err != nil {
		t.Fatalf("%s %v", errs, err)
	}
	for _, r := range records {
		if n := strings.Count(out, fmt.Sprintf("%q", r.ID)); n != 1 || !strings.Contains(out, r.Digest) {
			t.Errorf("the audit record has %d entries of record %s, want 1 with its digest", n, r.ID)
		}
	}
	if n := strings.Count(out, `"retention.ended"`); n != len(records) {
		t.Errorf("the audit record has %d entries of %d records", n, len(records))
	}
	if out, errs, err := s.berth("audit", "verify", "--state", s.state); err != nil {
		t.Errorf("the audit record: %s%s %v", out, errs, err)
	}
}
