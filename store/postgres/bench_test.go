package postgres_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
	"github.com/berth-run/berth/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store {
		db, err := postgres.Open(context.Background(), pgtest.URL(b),
			&postgres.Options{Keys: filepath.Join(b.TempDir(), "berth.keys")})
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
}
