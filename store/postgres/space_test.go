package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// Rows that replace deleted ones use their space: after a vacuum, as autovacuum makes it, the tables
// do not grow.
func TestSpaceIsReused(t *testing.T) {
	url := pgtest.URL(t)
	db := open(t, url, postgres.Options{})
	const size = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relname IN ('responses', 'requests', 'bodies', 'events', 'row_keys')"
	var first int64
	for round := range 5 {
		var ids []berth.ResponseID
		for range 100 {
			text := strings.Repeat("an instruction ", 2000)
			req := &berth.ResponseRequest{Model: "m", Instructions: &text}
			r := &store.Response{Project: "p", Request: req, Body: berth.NewResponse(berth.ResponseID(berth.NewID(berth.PrefixResponse)), 7, req)}
			if err := db.CreateResponse(t.Context(), r, nil, store.Lease{}); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.Body.ID)
		}
		for _, id := range ids {
			if err := db.DeleteResponse(t.Context(), "p", id); err != nil {
				t.Fatal(err)
			}
		}
		now := execute(t, url, size).(int64)
		if first == 0 {
			first = now
		}
		if now < 1<<20 || now > first+first/2 {
			t.Errorf("round %d: the tables have %d bytes, %d after the first round", round, now, first)
		}
		for _, table := range []string{"responses", "requests", "bodies", "events", "row_keys"} {
			execute(t, url, fmt.Sprintf("VACUUM %s", table))
		}
	}
}
