package image

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// feed writes a log to a meter in pieces and returns the reports, without times.
func feed(t *testing.T, log string, size int) (all []Progress, m *meter) {
	t.Helper()
	m = newMeter(func(p Progress) {
		p.Elapsed = 0
		all = append(all, p)
	})
	for len(log) > 0 {
		n := min(size, len(log))
		if got, err := m.Write([]byte(log[:n])); got != n || err != nil {
			t.Fatalf("Write: %d, %v, want %d", got, err, n)
		}
		log = log[n:]
	}
	return all, m
}

func TestProgress(t *testing.T) {
	log, err := os.ReadFile("testdata/mmdebstrap.log")
	if err != nil {
		t.Fatal(err)
	}
	want := []Progress{
		{Phase: Download, Step: "reading package lists"},
		{Phase: Unpack, Done: 0, Total: 2, Step: "extracting the required packages"},
		{Phase: Configure, Done: 1, Total: 2, Step: "setting up gcc-12-base:amd64"},
		{Phase: Unpack, Done: 2, Total: 2, Step: "unpacking libc6:amd64"},
		{Phase: Configure, Done: 2, Total: 2, Step: "setting up libc6:amd64"},
		{Phase: Download, Done: 3, Total: 3, Step: "downloading jq"},
		{Phase: Unpack, Done: 3, Total: 3, Step: "unpacking jq"},
		{Phase: Configure, Done: 3, Total: 3, Step: "setting up jq"},
		{Phase: Finish, Step: "running the recipe's commands"},
	}
	for _, size := range []int{1, 7, len(log)} {
		var got []Progress
		var m *meter
		// The bubble's clock does not advance, so that only changes of phase are reported.
		synctest.Test(t, func(t *testing.T) { got, m = feed(t, string(log), size) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in pieces of %d (-want +got):\n%s", size, diff)
		}
		if tail := m.output(); !strings.HasSuffix(tail, "success in 17.0 seconds") ||
			strings.Count(tail, "\n") != tailLines-1 {
			t.Errorf("output:\n%s", tail)
		}
	}
}

// A meter reads the same lines however output is cut, and bounds their length.
func FuzzProgress(f *testing.F) {
	f.Add("Unpacking a (1) ...\r\nSetting up a (1)", 3)
	f.Add(strings.Repeat("x", maxLine+5)+"\nGet:1 a b c d e f [1]\n", 4000)
	f.Fuzz(func(t *testing.T, log string, size int) {
		_, one := feed(t, log, len(log)+1)
		_, many := feed(t, log, max(1, size))
		if diff := cmp.Diff(one.output(), many.output()); diff != "" {
			t.Errorf("in pieces (-whole +pieces):\n%s", diff)
		}
		if diff := cmp.Diff(one.done, many.done); diff != "" {
			t.Errorf("counts (-whole +pieces):\n%s", diff)
		}
		if len(many.partial) > maxLine {
			t.Errorf("%d bytes of a line are buffered", len(many.partial))
		}
	})
}
