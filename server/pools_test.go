package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-run/berth/image"
)

// A pool whose template does not exist is logged.
func TestPoolWithoutTemplate(t *testing.T) {
	c, err := configure(t, "containers: {pools: [{template: pyhton, size: 1}]}")
	if err != nil {
		t.Fatal(err)
	}
	images, err := image.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	warnOfPools(images, c, slog.New(slog.NewTextHandler(&logged, nil)))
	if s := logged.String(); !strings.Contains(s, "containers.pools[0].template") || !strings.Contains(s, "pyhton") {
		t.Errorf("got %q", s)
	}
}
