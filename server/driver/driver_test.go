package driver

import (
	"maps"
	"slices"
	"testing"

	"github.com/berth-run/berth/sandbox/local"
	"github.com/berth-run/berth/server/config"
)

// The configuration names the drivers that exist.
func TestDrivers(t *testing.T) {
	if got := slices.Sorted(maps.Keys(drivers)); !slices.Equal(got, config.Drivers) {
		t.Errorf("there are the drivers %v, but the configuration has %v", got, config.Drivers)
	}
	if local.Name != config.UnsafeLocal {
		t.Errorf("the driver without isolation is %s, but %s in the configuration", local.Name, config.UnsafeLocal)
	}
}
