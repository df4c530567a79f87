package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// StateWarnings returns what a server would warn of with the state directory of this machine. It changes
// nothing there.
func StateWarnings(c *config.Config) []string {
	return slices.Concat(keyWarning(c), templateWarning(c))
}

// machineWait is how long MachineWarnings waits for a database, an engine or a cluster.
const machineWait = 10 * time.Second

// MachineWarnings returns what prevents a server from starting on this machine: a driver whose programs or
// engine are missing, or a PostgreSQL database or a bucket that cannot be used. It is no error of the configuration,
// which may be for another machine, or for a time when these are there.
func MachineWarnings(ctx context.Context, c *config.Config) (found []string) {
	ctx, cancel := context.WithTimeout(ctx, machineWait)
	defer cancel()
	dir, err := filepath.Abs(c.State)
	if err != nil {
		return nil // an error of the state directory
	}
	checks := append(checkDriver(ctx, dir, c), checkDatabase(ctx, dir, c)...)
	if c.Blobs != "" && state.VerifyBlobs(c) == nil {
		checks = append(checks, ExamineBucket(ctx, dir, c.Blobs))
	}
	for _, f := range checks {
		if f.OK {
			continue
		}
		key := "driver"
		switch f.What {
		case "store":
			key = "store.url"
		case "blobs":
			key = "blobs"
		}
		advice := f.Advice
		if f.Fix != nil {
			advice = "berth " + strings.Join(f.Fix, " ")
		}
		found = append(found, strings.TrimSuffix(fmt.Sprintf("%scannot be used on this machine: %s: %s; %s", c.At(key),
			f.What, f.Detail, advice), "; "))
	}
	return found
}

// keyWarning warns of an address that a server with a new state directory refuses.
func keyWarning(c *config.Config) []string {
	if !c.Server.NeedsKey() || state.HasDatabase(c.State) || c.Store.URL != "" {
		return nil
	}
	return []string{c.At("server.listen") +
		"needs an API key before the first start, because it is not a loopback address: berth key create --state " +
		c.State}
}

func templateWarning(c *config.Config) []string {
	if !c.IsSet("template") || c.Driver == config.UnsafeLocal {
		return nil
	}
	if _, err := os.ReadDir(filepath.Join(c.State, "images")); err != nil {
		return nil // not this machine's, or not this user's
	}
	if _, f := CheckTemplate(c.State, c); !f.OK {
		return []string{fmt.Sprintf(
			"%s%q does not exist in %s, so containers cannot start; berth image ls lists the templates",
			c.At("template"), c.Template, c.State)}
	}
	return nil
}
