package container_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/layer"
)

// hostileTime is longer than any hostile layer may block a start.
const hostileTime = 2 * time.Minute

// TestHostileLayer starts containers from layers that no import accepts: they remove or replace
// files that the sandbox needs. Each first call ends, with the command's answer or the reason
// for the failure.
func TestHostileLayer(t *testing.T) {
	k, kept := newGVisorServices(t, 0)
	file := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644} }
	for name, c := range map[string]struct {
		entries []*tar.Header
		words   string // of the error; "" if the command runs
	}{
		"the root is removed": {[]*tar.Header{file(".wh..wh..opq")}, "sh"},
		"the guest is removed": {[]*tar.Header{file(".wh..berth"), file(".wh.proc"), file(".wh.dev"),
			file(".wh.sys")}, ""},
		"the programs are removed": {[]*tar.Header{file(".wh.usr"), file(".wh.bin"), file(".wh.lib"),
			file(".wh.lib64")}, "sh"},
		"mounts are replaced": {[]*tar.Header{file("proc"), file("dev"),
			{Typeflag: tar.TypeSymlink, Name: "sys", Linkname: "/tmp"}}, ""},
		"the kernel is written to": {[]*tar.Header{file("proc/sys/kernel/hostname"), file("dev/null"), file("sys/x")},
			""},
		"a capability is malformed": {[]*tar.Header{{Typeflag: tar.TypeReg, Name: "su", Mode: 0o4755,
			PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}}},
			"could not be started: its snapshot could not be restored"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var plain bytes.Buffer
			w := tar.NewWriter(&plain)
			for _, h := range c.entries {
				if err := w.WriteHeader(h); err != nil {
					t.Fatal(err)
				}
			}
			w.Close()
			r := &snapshot.Record{Snapshot: &berth.Snapshot{Template: "sha256:bench", Cause: berth.SnapshotImported}}
			err := kept.Create(t.Context(), byBench.Project, r, func(w io.Writer) (layer.Made, error) {
				made := layer.Made{Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes()))}
				_, err := w.Write(plain.Bytes())
				return made, err
			})
			if err != nil {
				t.Fatal(err)
			}
			c0 := inhabit(t, k, container.CreateRequest{Source: berth.ContainerSource{SnapshotID: r.Snapshot.ID}})
			ctx, cancel := context.WithTimeout(t.Context(), hostileTime)
			defer cancel()
			out, err := c0.try(ctx, "echo here; test -r /proc/self/stat && test -c /dev/null && echo whole")
			switch {
			case ctx.Err() != nil:
				t.Errorf("its first call did not end: %q, %v", out, err)
			case c.words == "" && (err != nil || out != "here\nwhole\n"):
				t.Errorf("got %q, %v", out, err)
			case c.words != "" && (err == nil || !strings.Contains(out+err.Error(), c.words)):
				t.Errorf("got %q, %v, want %q", out, err, c.words)
			}
			t.Logf("%q, %v", out, err)
		})
	}
}
