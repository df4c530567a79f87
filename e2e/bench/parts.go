package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// partPackages are those whose Go benchmarks say what a table above is made of.
var partPackages = []string{"./engine", "./model/chat", "./store/sqlite"}

// measureParts runs Go benchmarks.
func measureParts(ctx context.Context, b *bench) error {
	args := append([]string{"test", "-run", "^$", "-bench", ".", "-benchtime", "200ms"}, partPackages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends what it started
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	fmt.Fprint(b.out, "\n## Parts (Go benchmarks)\n\n")
	printCells(b.out, benchmarkCells(out))
	return nil
}

// benchmarkCells makes a table of what go test -bench prints.
func benchmarkCells(out []byte) [][]string {
	cells := [][]string{{"package", "benchmark", "each", "and"}}
	pkg := ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 2 && f[0] == "pkg:":
			pkg = strings.TrimPrefix(f[1], "github.com/berth-run/berth/")
		case len(f) >= 4 && strings.HasPrefix(f[0], "Benchmark"):
			var more []string
			for i := 4; i+1 < len(f); i += 2 {
				more = append(more, f[i]+" "+f[i+1])
			}
			name, _, _ := cutLast(strings.TrimPrefix(f[0], "Benchmark"), "-") // how many processors
			cells = append(cells, []string{pkg, name, perOperation(f[2]), strings.Join(more, ", ")})
		}
	}
	return cells
}

// perOperation writes nanoseconds in a unit that fits.
func perOperation(ns string) string {
	var v float64
	if _, err := fmt.Sscan(ns, &v); err != nil {
		return ns + " ns"
	}
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if v >= u.size {
			return number(v/u.size) + " " + u.name
		}
	}
	return number(v) + " ns"
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
