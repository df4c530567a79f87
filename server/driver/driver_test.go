package driver

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
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

// The glossary and the page about drivers name each driver, and no other.
func TestDriversInDocumentation(t *testing.T) {
	for page, row := range map[string]string{"glossary.md": "| **Driver** |", "drivers.md": "| | `"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		var named []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, row) {
				for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
					named = append(named, found[1])
				}
			}
		}
		slices.Sort(named)
		if !slices.Equal(named, config.Drivers) {
			t.Errorf("%s names the drivers %v, but there are %v", page, named, config.Drivers)
		}
	}
}
