package drivertest

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/sandbox"
)

//go:embed changes.py
var changesScript string

// changesRounds is the number of archives of random changes, each with the earlier changes
// below.
const changesRounds = 2

// archiveChanges archives random changes. The archive has all changes that a scan of the
// sandbox finds, and makes another sandbox the same.
func (s contents) archiveChanges(t *testing.T) {
	if !s.isolates() {
		return // these would be the machine's files
	}
	// nothing that the script needs
	tops := "/opt /srv /etc/apt /etc/default /etc/skel /usr/share/perl5 /usr/share/python3 /mnt/data"
	if s.features.Slowness > 1 {
		tops = "/opt /etc/apt /etc/skel /usr/share/bash-completion /mnt/data"
	}
	changed := "/"
	if s.features.NoRoot {
		tops, changed = "/mnt/data", "/mnt/data"
	}
	d := s.open(t)
	first := Start(t, d, sandbox.Spec{ID: "first", Template: s.Template})
	script := func(b *Box, args string) string {
		t.Helper()
		return b.Must(s.asRoot("sudo python3 -BI /tmp/changes.py " + args))
	}
	prepare := func(b *Box) {
		t.Helper()
		if err := b.Client.WriteFile(t.Context(), "/mnt/data", "changes.py", "",
			strings.NewReader(changesScript)); err != nil {
			t.Fatal(err)
		}
		b.Must("mv changes.py /tmp/ && touch /tmp/before")
	}
	prepare(first)
	for round := range changesRounds {
		seed := rand.Uint32()
		script(first, fmt.Sprintf("change %d 60 %s", seed, tops))
		everything := first.Must(s.asRoot(`sudo find ` + changed +
			` -xdev \( -path /.berth -o -path /run/berth \) -prune -o -cnewer /tmp/before ! -type s -print0`))
		archived := archivedNames(t, first)
		for path := range strings.SplitSeq(everything, "\x00") {
			if path != "" && !archived[path] {
				t.Errorf("seed %d, round %d: %q changed but is not archived", seed, round, path)
			}
		}
		second := Start(t, d, sandbox.Spec{ID: fmt.Sprintf("second-%d", round), Template: s.Template})
		if err := second.Client.ApplyArchive(t.Context(), bytes.NewReader(s.layerOf(t, first))); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		want, got := script(first, "look "+tops), script(second, "look "+tops)
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Fatalf("seed %d, round %d (-want +got):\n%.3000s", seed, round, diff)
		}
	}
}

// archivedNames returns the paths in a sandbox's archive.
func archivedNames(t *testing.T, b *Box) map[string]bool {
	t.Helper()
	r, err := b.Client.Archive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	names := map[string]bool{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names["/"+strings.Trim(strings.TrimPrefix(h.Name, "."), "/")] = h.Typeflag != 'B' || names["/"+h.Name]
	}
}
