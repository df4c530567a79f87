package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	for _, synchronous := range []string{"normal", "full"} {
		b.Run(synchronous, func(b *testing.B) {
			storetest.Bench(b, func(b *testing.B) store.Store {
				db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "berth.db"),
					&sqlite.Options{Synchronous: synchronous})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() {
					if err := db.Close(); err != nil {
						b.Error(err)
					}
				})
				return db
			})
		})
	}
}

// BenchmarkRawInsert measures one row in a transaction of its own, for comparison.
func BenchmarkRawInsert(b *testing.B) {
	for _, synchronous := range []string{"NORMAL", "FULL"} {
		b.Run(synchronous, func(b *testing.B) {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(),
				"raw.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")")
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			db.SetMaxOpenConns(1)
			if _, err := db.Exec(
				"CREATE TABLE events (response TEXT, n INTEGER, type TEXT, data BLOB, PRIMARY KEY (response, n)) WITHOUT ROWID"); err != nil {
				b.Fatal(err)
			}
			insert, err := db.Prepare("INSERT INTO events (response, n, type, data) VALUES (?, ?, ?, ?)")
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				if _, err := insert.Exec("resp_000000000000000000000000000000000000000000000000", i, "response.output_text.delta",
					make([]byte, 150)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
