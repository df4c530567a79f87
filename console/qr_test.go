package console

import (
	"fmt"
	"strings"
	"testing"

	"rsc.io/qr"
)

// TestQRCode: the path covers exactly the black squares of the code, with a margin.
func TestQRCode(t *testing.T) {
	const link = "https://8000-abc.ports.example/preview/x?token=1"
	code, want := newQRCode(link), must(qr.Encode(link, qr.M))
	if code == nil || code.Width != want.Size+8 {
		t.Fatalf("got %+v, want a side of %d", code, want.Size+8)
	}
	black := map[[2]int]bool{}
	for run := range strings.SplitSeq(strings.TrimSuffix(code.Path, "z"), "z") {
		var x, y, n, back int
		if _, err := fmt.Sscanf(run, "M%d %dh%dv1h-%d", &x, &y, &n, &back); err != nil || back != n {
			t.Fatalf("%s: %v", run, err)
		}
		for i := range n {
			black[[2]int{x + i - 4, y - 4}] = true
		}
	}
	for y := range want.Size {
		for x := range want.Size {
			if black[[2]int{x, y}] != want.Black(x, y) {
				t.Fatalf("the square at %d, %d is wrong", x, y)
			}
		}
	}
	if newQRCode(strings.Repeat("x", 5000)) != nil {
		t.Error("a text that fits in no code has one")
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
