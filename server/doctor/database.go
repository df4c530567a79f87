package doctor

import (
	"context"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store/postgres"
)

// checkDatabase checks whether the database can be used.
func checkDatabase(ctx context.Context, dir string, c *config.Config) []Finding {
	at, err := state.StoreURL(dir, c.Store.URL)
	if err != nil {
		return []Finding{{What: "store", Detail: err.Error()}}
	}
	if at == "" {
		return nil
	}
	shown := config.Masked("store.url", at)
	info, err := postgres.Inspect(ctx, at)
	switch {
	case err != nil:
		return []Finding{{What: "store", Detail: shown + ": " +
			err.Error(), Advice: "the server cannot start without its database; see " + berth.DocsURL + "postgres.md"}}
	case info.Holder != "":
		return []Finding{{What: "store", OK: true, Detail: fmt.Sprintf("%s, PostgreSQL %s, in use by %s", shown,
			info.Version, info.Holder)}}
	}
	return []Finding{{What: "store", OK: true, Detail: fmt.Sprintf("%s, PostgreSQL %s", shown, info.Version)}}
}
