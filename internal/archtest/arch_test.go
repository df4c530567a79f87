package archtest

import (
	"strings"
	"testing"
)

func TestHouse(t *testing.T) {
	broken, err := Check("../..", Imports, Bans)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

// The rules find what breaks them, in a small tree that breaks each once.
func TestRulesBite(t *testing.T) {
	broken, err := Check("testdata/house", map[string][]string{"": {}, "store": {""}, "engine": {"store"}, "api": {"engine"}},
		map[string][]string{"net/http": {"api"}})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(broken, "\n")
	for _, want := range []string{
		`engine/bad.go imports net/http`,
		`engine/bad.go imports "api" of the house`,
		`noun.go imports example.com/else`,
		`package "attic" is in no table`,
		`package "store" has its doc comment in 2 files`,
		`package "api" has its doc comment in 0 files`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q was not found among:\n%s", want, got)
		}
	}
	if len(broken) != 6 {
		t.Errorf("%d rules are broken, want 6:\n%s", len(broken), got)
	}
}
