package drivertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox"
)

// tree creates ten files in each of a number of directories.
const tree = `python3 -c '
import os
for i in range(%d):
    os.mkdir("d%%d" %% i)
    for n in range(10): open("d%%d/%%d" %% (i, n), "w").write("hello")'`

// wantChanges runs a command and checks the reported changes of files.
func (b *Box) wantChanges(script string, want ...guest.FileChange) {
	b.tb.Helper()
	b.checkChanges(script, b.Sh(script), want)
}

// wantNoChanges runs a command that changes nothing, and checks that no changes are reported.
func (b *Box) wantNoChanges(script string) {
	b.tb.Helper()
	b.checkChanges(script, b.Sh(script), nil)
}

func (b *Box) checkChanges(script string, r Result, want []guest.FileChange) {
	b.tb.Helper()
	if r.Err != nil || r.Code != 0 || r.MoreFiles != 0 {
		b.tb.Errorf("%s: got exit code %d, error %v, %d more changes, stderr %q", script, r.Code, r.Err, r.MoreFiles,
			r.Stderr)
	}
	if diff := cmp.Diff(want, r.Files); diff != "" {
		b.tb.Errorf("%s (-want +got):\n%s", script, diff)
	}
}

// filesOfCalls checks the reported file changes of calls, among many files, and after events in
// the sandbox between the calls.
func (s contents) filesOfCalls(t *testing.T) {
	d := s.open(t)
	b := Start(t, d, sandbox.Spec{ID: "first", Template: s.Template})
	dirs := 1000
	if s.features.Isolation != "gvisor" && s.features.Isolation != "microvm" {
		dirs = 30 // each call walks it
	}
	r := b.Sh(fmt.Sprintf(tree, dirs))
	if len(r.Files) != 200 || r.MoreFiles != int64(10*dirs-200) {
		t.Fatalf("got %d new files, %d reported and %d not", 10*dirs, len(r.Files), r.MoreFiles)
	}
	info, err := b.Client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ordinary := func(b *Box) {
		t.Helper()
		b.wantNoChanges("true")
		b.wantChanges("echo more >>d7/3; rm d8/4; mv d9/5 d9/new; chmod 600 d9/6; ln -s d1 link; cat d1/1",
			guest.FileChange{Path: "d7/3", Kind: guest.FileUpdated, Bytes: 10}, guest.FileChange{Path: "d8/4",
				Kind: guest.FileDeleted, Bytes: 5},
			guest.FileChange{Path: "d9/5", Kind: guest.FileDeleted, Bytes: 5}, guest.FileChange{Path: "d9/6",
				Kind: guest.FileUpdated, Bytes: 5},
			guest.FileChange{Path: "d9/new", Kind: guest.FileCreated, Bytes: 5})
		b.wantChanges("mkdir -p x/y; echo 1 >x/y/z; sync",
			guest.FileChange{Path: "x/y/z", Kind: guest.FileCreated, Bytes: 2})
		b.wantChanges(`python3 -c '
import mmap
with open("x/y/z", "r+b") as f: mmap.mmap(f.fileno(), 0)[0:1] = b"2"'; mv x w`,
			guest.FileChange{Path: "w/y/z", Kind: guest.FileCreated, Bytes: 2}, guest.FileChange{Path: "x/y/z",
				Kind: guest.FileDeleted, Bytes: 2})
		if err := b.Client.WriteFile(t.Context(), info.WorkDir, "w/put", "",
			strings.NewReader("by the server")); err != nil {
			t.Error(err)
		}
		b.wantNoChanges("cat w/put") // put is not a change of the call
		b.wantChanges("(while ! test -e w/go; do sleep .01; done; echo late >w/late) >/dev/null 2>&1 &")
		if err := b.Client.WriteFile(t.Context(), info.WorkDir, "w/go", "", strings.NewReader("")); err != nil {
			t.Error(err)
		}
		b.Must("until test -s w/late; do sleep .01; done")
		b.wantChanges("rm -r w link; rm d9/new; echo hello >d9/5; touch d8/4",
			guest.FileChange{Path: "d8/4", Kind: guest.FileCreated}, guest.FileChange{Path: "d9/5",
				Kind: guest.FileCreated, Bytes: 6},
			guest.FileChange{Path: "d9/new", Kind: guest.FileDeleted, Bytes: 5}, guest.FileChange{Path: "w/go",
				Kind: guest.FileDeleted},
			guest.FileChange{Path: "w/late", Kind: guest.FileDeleted, Bytes: 5}, guest.FileChange{Path: "w/put",
				Kind: guest.FileDeleted, Bytes: 13},
			guest.FileChange{Path: "w/y/z", Kind: guest.FileDeleted, Bytes: 2})
		b.Must("printf hello >d7/3; printf hello >d9/5; printf hello >d8/4")
	}
	ordinary(b)
	if s.features.Pause {
		if err := d.Pause(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
		if err := d.Resume(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
		ordinary(b)
	}
	if _, ok := d.(sandbox.Snapshotter); ok {
		image := b.Checkpoint()
		ordinary(b)
		ordinary(Restore(t, d, sandbox.Spec{ID: "second", Template: s.Template}, image))
	}
}

// floodFiles creates more files than the guest can record, and then renames files in the
// background without end. The guest's memory does not grow, and calls do not slow down.
func (s attacks) floodFiles(t *testing.T) {
	d := s.open(t)
	b := Start(t, d, sandbox.Spec{ID: "flood", Template: s.Template})
	resident := func() string { return b.Must("awk '/VmRSS/ && $2 > 96000 {print}' /proc/1/status") }
	b.wantNoChanges("true")
	r := b.ShTimeout(`python3 -c '
import os
for i in range(400):
    os.mkdir("d%d" % i)
    for n in range(500): os.mknod("d%d/%d" % (i, n))
open(b"bad\xff\n", "w")'`, b.patience*2*time.Minute)
	if r.Code != 0 || r.Timeout {
		t.Fatalf("got exit code %d, timeout %v, stderr %.500q", r.Code, r.Timeout, r.Stderr)
	}
	if r.MoreFiles != -1 {
		t.Errorf("got 200000 files, %d reported and %d not", len(r.Files), r.MoreFiles)
	}
	if s.isolates() {
		if large := resident(); large != "" {
			t.Errorf("the guest has %s", large)
		}
	}
	b.Must("rm -rf *; mkdir s; (while :; do mv s t; mv t s; : >s/a$((n = n + 1)); rm s/a*; done) >/dev/null 2>&1 & echo $! >/tmp/storm")
	for range 20 {
		began := time.Now()
		b.Must("true")
		if took := time.Since(began); took > b.patience*30*time.Second {
			t.Errorf("during the renames a call took %v", took)
		}
	}
	if s.isolates() {
		if large := resident(); large != "" {
			t.Errorf("then the guest has %s", large)
		}
	}
	b.Must("kill $(cat /tmp/storm)")
	b.Answers()
}
