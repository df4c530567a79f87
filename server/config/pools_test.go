package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoolsConfig(t *testing.T) {
	c, err := readConfig(t,
		"template: main\ncontainers:\n  pool: 1\n  pools: [{template: main, memory_limit: 4g, size: 1}, {template: python, size: 1}]\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Pool{{MemoryLimit: "1g", Size: 1, MaxSize: 100}, {MemoryLimit: "4g", Size: 1},
		{Template: "python", MemoryLimit: "1g", Size: 1}}
	if diff := cmp.Diff(want, c.AllPools()); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"{pool: -1}":           `containers.pool: "-1" must be 0 or more`,
		"{pools: [{size: 0}]}": `containers.pools[0].size: "0" must be 1 or more`,
		"{max_pool: -1}":       `containers.max_pool: "-1" must be 0 or more`,
		"{pools: [{memory_limit: 4g, size: 3, max_size: 2}]}": "containers.pools[0].max_size is 2: it must be size, which is 3, or more",
		"{pools: [{size: 1}]}":                                "containers.pools[0]: another pool holds",
		"{pools: [{template: base, size: 1}]}":                "containers.pools[0]: another pool holds",
		"{pools: [{memory_limit: 2g, size: 1}]}":              `containers.pools[0].memory_limit: "2g" is not`,
		"{pools: [{memory: 2g, size: 1}]}":                    "unknown key containers.pools[0].memory; ",
		"{pools: [{memory_limit: 64g, size: 999}]}":           "this machine has",
		"{pool: 1000000}":                                     "this machine has",
	} {
		if _, err := readConfig(t, "containers: "+text+"\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	for text, fits := range map[string]bool{
		"{}": true, "{pool: 3}": false, // the default fits any machine
		"{pool: 0, pools: [{size: 2}]}": true, "{pool: 0, pools: [{size: 1}, {memory_limit: 4g, size: 1}]}": false,
	} {
		c, err := readConfig(t, "containers: "+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.checkPools(2 << 30); (err == nil) != fits {
			t.Errorf("%s on 2g: got %v, want fits: %v", text, err, fits)
		}
	}
	if err := (&Config{Containers: Containers{Pool: defaultPool}}).checkPools(1 << 20); err != nil {
		t.Errorf("default on a small machine: %v", err)
	}
}
