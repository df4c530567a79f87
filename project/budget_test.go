package project

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

func money(n berth.Amount) *berth.Amount { return &n }

// A project and a key that have spent their month's budget start nothing new, and others do. A
// restart forgets nothing.
func TestCostPerMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, path := t.Context(), filepath.Join(t.TempDir(), "berth.db")
		db, err := sqlite.Open(ctx, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { db.Close() }()
		limits := map[berth.ProjectID]berth.Limits{"proj_a": {CostPerMonth: money(100)},
			"proj_zero": {CostPerMonth: money(0)}}
		quota := func() *Quota {
			return NewQuota(QuotaOptions{Objects: db, Usages: db, Keys: db, Limits: limits, Currency: "eur"})
		}
		for i, id := range []berth.KeyID{"key_1", "key_2"} {
			if err := db.CreateKey(ctx, &berth.Key{ID: id, Project: "proj_a", Hash: [32]byte{byte(i)},
				CreatedAt: int64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		spend := func(p berth.ProjectID, key berth.KeyID, cost berth.Amount) {
			t.Helper()
			if err := db.AddUsage(ctx, &store.Usage{Project: p, Kind: store.UsageResponse, Key: key, Name: "m",
				Count: 1, Cost: cost}); err != nil {
				t.Fatal(err)
			}
		}
		q := quota()
		begin := func(p berth.ProjectID, key berth.KeyID, says string) {
			t.Helper()
			end, err := q.Begin(ctx, berth.Caller{Project: p, Key: key}, 1)
			if err == nil {
				end(1)
			}
			if says == "" {
				if err != nil {
					t.Errorf("%s, %s: got %v", p, key, err)
				}
				return
			}
			_, next := store.Month(time.Now())
			e, ok := err.(*berth.Error)
			if !ok || e.RetryAfter != time.Until(next) {
				t.Fatalf("%s, %s: got %#v, want an error until %v", p, key, err, next)
			}
			wantError(t, err, "insufficient_quota", "insufficient_quota",
				"You exceeded your current quota. "+says+" The next month starts at "+next.Format(time.RFC3339)+".",
				e.RetryAfter)
		}
		begin("proj_zero", "", "Project proj_zero has spent 0 eur in this month and its limit is 0.")
		begin("proj_a", "key_1", "")
		keyLimits := &berth.KeyLimits{CostPerMonth: money(10)}
		if _, err := New(Options{Objects: db, Keys: db}).UpdateKey(ctx, "key_1",
			KeyChange{Limits: keyLimits}); err != nil {
			t.Fatal(err)
		}
		spend("proj_a", "key_1", 9)
		begin("proj_a", "key_1", "")
		spend("proj_a", "key_1", 1)
		spend("proj_b", "key_b", 1_000_000_000)
		begin("proj_a", "key_1", "API key key_1 has spent 0.00000001 eur in this month and its limit is 0.00000001.")
		begin("proj_a", "key_2", "")
		begin("proj_b", "key_b", "")
		spend("proj_a", "", 90)
		begin("proj_a", "key_2", "Project proj_a has spent 0.0000001 eur in this month and its limit is 0.0000001.")

		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if db, err = sqlite.Open(ctx, path, nil); err != nil {
			t.Fatal(err)
		}
		q = quota()
		begin("proj_a", "key_2", "Project proj_a has spent 0.0000001 eur in this month and its limit is 0.0000001.")
		if _, err := New(Options{Objects: db, Keys: db}).SetLimits(ctx, "proj_a",
			berth.Limits{CostPerMonth: money(-1)}); err != nil {
			t.Fatal(err)
		}
		q = quota()
		begin("proj_a", "key_2", "")
		begin("proj_a", "key_1", "API key key_1 has spent 0.00000001 eur in this month and its limit is 0.00000001.")
		if err := db.DeleteKey(ctx, "key_2"); err != nil {
			t.Fatal(err)
		}
		spend("proj_a", "key_2", 3)

		own := []Spend{{Project: "proj_a", Used: 103}, {Project: "proj_a", Key: "key_1", Used: 10, Limit: money(10)},
			{Project: "proj_a", Key: "key_2", Used: 3}}
		everyone := append(own, Spend{Project: berth.DefaultProject}, Spend{Project: "proj_b", Used: 1_000_000_000},
			Spend{Project: "proj_b", Key: "key_b", Used: 1_000_000_000})
		for id, want := range map[berth.ProjectID][]Spend{"proj_a": own, "": everyone,
			"proj_zero": {{Project: "proj_zero", Limit: money(0)}}} {
			got, month, next, err := q.Spending(ctx, id)
			if err != nil || month.Day() != 1 || next.Day() != 1 || month.After(time.Now()) || !next.After(time.Now()) {
				t.Fatalf("got %v to %v, %v", month, next, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", id, diff)
			}
		}
	})
}
