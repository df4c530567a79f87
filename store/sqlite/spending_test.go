package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// The first start of a version that sums spending counts what was used before.
func TestSpendingOfEarlierDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth.db")
	db := open(t, path)
	for _, u := range []store.Usage{{Project: theProject, Kind: store.UsageResponse, Key: "key_1", Name: "m", Cost: 5},
		{Project: theProject, Kind: store.UsageImage, Key: "key_1", Name: "i", Cost: 2},
		{Project: theProject, Kind: store.UsageUpstream, Key: "key_1", Name: "a/m", Cost: 7},
		{Project: theProject, Kind: store.UsageResponse, Key: "key_2", Name: "m"}} {
		if err := db.AddUsage(t.Context(), &u); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	last := time.Date(2024, time.February, 29, 23, 59, 0, 0, time.UTC) // a minute of another month
	for _, statement := range []string{"DROP TABLE spending", "ALTER TABLE keys DROP COLUMN cost_per_month",
		"ALTER TABLE keys DROP COLUMN owner", "ALTER TABLE keys DROP COLUMN note", "ALTER TABLE keys DROP COLUMN role",
		"ALTER TABLE keys DROP COLUMN scope", "ALTER TABLE keys DROP COLUMN last_used_at",
		"DROP INDEX containers_by_unique_name",
		"ALTER TABLE containers DROP COLUMN unique_name", "DELETE FROM goose_db_version WHERE version_id >= 13",
		"INSERT INTO usage SELECT project, unixepoch('2024-02-29 23:59:00'), kind, key, name, count, input_tokens, cached_tokens, output_tokens, reasoning_tokens, seconds, 11 FROM usage WHERE name = 'm' AND key = 'key_2'"} {
		if _, err := raw.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, path)
	defer db.Close()
	for _, tt := range []struct {
		at        time.Time
		all, ofIt berth.Amount
	}{{time.Now(), 7, 7}, {last, 11, 0}, {last.Add(time.Minute), 0, 0}} {
		month, _ := store.Month(tt.at)
		if all, ofIt, err := db.Spent(t.Context(), theProject, "key_1", month); err != nil || all != tt.all ||
			ofIt != tt.ofIt {
			t.Errorf("%s: got %d and %d, %v, want %d and %d", month, all, ofIt, err, tt.all, tt.ofIt)
		}
	}
}
