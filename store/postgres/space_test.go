package postgres_test

import (
	"errors"
	"fmt"
	"path/filepath"
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
			r := &store.Response{Project: "p", Request: req,
				Body: berth.NewResponse(berth.ResponseID(berth.NewID(berth.PrefixResponse)), 7, req)}
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

// Compact returns the space of deleted rows to the disk, which a vacuum does not if rows follow them. It is
// refused while a server uses the database.
func TestCompact(t *testing.T) {
	url, keys := pgtest.URL(t), filepath.Join(t.TempDir(), "berth.keys")
	db := open(t, url, postgres.Options{Keys: keys, Claim: true})
	var ids []berth.ResponseID
	for range 101 {
		// Digits of random ids do not compress, and the row has more than one page.
		var b strings.Builder
		for range 800 {
			b.WriteString(berth.NewID(berth.PrefixResponse))
		}
		text := b.String()
		req := &berth.ResponseRequest{Model: "m", Instructions: &text}
		r := &store.Response{Project: "p", Request: req,
			Body: berth.NewResponse(berth.ResponseID(berth.NewID(berth.PrefixResponse)), 7, req)}
		if err := db.CreateResponse(t.Context(), r, nil, store.Lease{}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.Body.ID)
	}
	last := ids[len(ids)-1]
	want, err := db.GetResponse(t.Context(), "p", last)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids[:len(ids)-1] {
		if err := db.DeleteResponse(t.Context(), "p", id); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := postgres.Compact(t.Context(), url); !errors.Is(err, postgres.ErrClaimed) {
		t.Errorf("beside a server: got error %v, want %v", err, postgres.ErrClaimed)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "VACUUM")
	before, after, err := postgres.Compact(t.Context(), url)
	if err != nil || before-after < 2<<20 {
		t.Errorf("got %d bytes of %d, %v", after, before, err)
	}
	if got, err := open(t, url, postgres.Options{Keys: keys}).GetResponse(t.Context(), "p", last); err != nil ||
		*got.Request.Instructions != *want.Request.Instructions {
		t.Errorf("a response afterwards: %v", err)
	}
}
