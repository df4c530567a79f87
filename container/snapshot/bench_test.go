package snapshot_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/layer"
)

// BenchmarkCreate measures making and reading a snapshot of a file that cannot be compressed.
func BenchmarkCreate(b *testing.B) {
	const size = 100 << 20
	h := newHarness(b)
	var in bytes.Buffer
	tw := tar.NewWriter(&in)
	_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "mnt/data/f", Size: size})
	if _, err := io.CopyN(tw, rand.Reader, size); err != nil {
		b.Fatal(err)
	}
	tw.Close()
	var last *snapshot.Record
	b.Run("create", func(b *testing.B) {
		b.SetBytes(size)
		defer reportCPU(b)()
		for b.Loop() {
			last = &snapshot.Record{Snapshot: &berth.Snapshot{ContainerID: "cntr_1", Cause: berth.SnapshotRequested,
				Template: "sha256:1"}}
			if err := h.l.Create(b.Context(), mine, last, func(w io.Writer) (layer.Made, error) {
				return layer.Make(w, bytes.NewReader(in.Bytes()), "", layer.Limits{})
			}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		b.SetBytes(size)
		defer reportCPU(b)()
		for b.Loop() {
			r, err := h.l.Open(b.Context(), mine, last)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, r); n < size || err != nil {
				b.Fatalf("got %d bytes, %v", n, err)
			}
			r.Close()
		}
	})
}

// reportCPU reports after the benchmark the CPU time of an operation.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var own unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
			b.Fatal(err)
		}
		return own.Utime.Nano() + own.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/1e6/float64(b.N), "cpu-ms/op") }
}
