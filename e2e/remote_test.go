package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/kubetest"
	"github.com/berth-run/berth/internal/s3test"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// TestMain runs the tests of the suite that scripts/test asks for, in the namespaces of a cluster if make test-cluster
// runs them.
func TestMain(m *testing.M) {
	if err := selectSuite(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(2)
	}
	kubetest.Run(func() int { return pgtest.Run(m) })
}

// withRemote returns a configuration with a new database in PostgreSQL and a new bucket, if BERTH_TEST_REMOTE is
// set and the configuration names neither. `make test-remote` thus runs tests of one machine with both.
func withRemote(t *testing.T, config string) string {
	t.Helper()
	if os.Getenv("BERTH_TEST_REMOTE") == "" || strings.Contains(config, "store:") || strings.Contains(config,
		"blobs:") {
		return config
	}
	return config + "store: " + pgtest.URL(t) + "\nblobs: " + s3test.Start(t).Bucket("berth") + "\n"
}

// needsLocalState skips a test of files that are in the state directory only without PostgreSQL and a bucket.
func needsLocalState(t *testing.T) {
	t.Helper()
	if os.Getenv("BERTH_TEST_REMOTE") != "" {
		t.Skip("skipped: needs the database and the files in the state directory")
	}
}
