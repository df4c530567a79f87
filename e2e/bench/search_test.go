package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/longtest"
)

// TestSearchQuality fails when vector stores find far fewer of Debian's documents than they did
// when docs/performance.md was written.
func TestSearchQuality(t *testing.T) {
	longtest.Skip(t)
	if os.Geteuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	t.Chdir(filepath.Join("..", ".."))
	b := &bench{out: t.Output(), docs: 300, bin: "bin"}
	if err := b.prepare(); err != nil {
		t.Skip(err)
	}
	found, err := b.searchDebian(t.Context())
	if err := b.cleanUp(); err != nil {
		t.Error(err)
	}
	if errors.Is(err, errNotInstalled) {
		t.Skip("skipped: scripts/setup search installs the documents and the embedding model")
	}
	if err != nil {
		t.Fatal(err)
	}
	n := float64(found.queries)
	for _, way := range []struct {
		what        string
		f           finding
		recall, mrr float64
	}{{"BM25", found.words, 0.85, 0.7}, {"hybrid", found.both, 0.9, 0.75}} {
		recall, mrr := float64(way.f.hits)/n, way.f.mrr/n
		t.Logf("%s: recall@5 %.3f, MRR %.3f of %d queries", way.what, recall, mrr, found.queries)
		if recall < way.recall || mrr < way.mrr {
			t.Errorf("%s finds less: want recall@5 of %.2f and MRR of %.2f", way.what, way.recall, way.mrr)
		}
	}
}
