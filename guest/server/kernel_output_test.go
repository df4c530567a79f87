package server

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/guest/jupyter"
)

// recorded returns the recorded messages of a kernel.
func recorded(t *testing.T, add func(o *kernelOutput)) (text string, results []map[string]json.RawMessage) {
	t.Helper()
	sp := &spool{name: filepath.Join(t.TempDir(), "output"), ring: func() {}}
	o := newKernelOutput(sp)
	add(o)
	o.finish()
	sp.close()
	var lines jupyter.Decoder
	buf := make([]byte, 8<<20)
	for offset := int64(0); ; {
		at, n, end := sp.read(offset, buf)
		for _, ev := range lines.Write(buf[:n], at-offset) {
			if ev.Data != nil {
				results = append(results, ev.Data)
			}
			text += ev.Text
		}
		if offset = at + int64(n); end {
			return text, results
		}
	}
}

// One message with more text than is recorded keeps its start and its end.
func TestKernelText(t *testing.T) {
	all := "HEAD" + strings.Repeat("ü", kernelHead) + "TAIL"
	text, _ := recorded(t, func(o *kernelOutput) { o.print(jupyter.Event{Type: jupyter.Stream, Text: all}) })
	if !strings.HasPrefix(text, "HEADü") || !strings.HasSuffix(text, "üTAIL") || !strings.Contains(text,
		"bytes of output were left out]") ||
		len(text) < kernelHead || len(text) > kernelHead+kernelTail+100 || strings.Contains(text, "\uFFFD") {
		t.Errorf("got %d bytes: %.40q … %q", len(text), text, text[max(0, len(text)-40):])
	}
}

// A result that is too large does not displace those after it.
func TestKernelResults(t *testing.T) {
	value := func(n int) jupyter.Event {
		return jupyter.Event{Type: jupyter.Result, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"` +
			strings.Repeat("x", n) + `"`)}}
	}
	text, results := recorded(t, func(o *kernelOutput) {
		for _, n := range []int{kernelData / 2, kernelData, 2} {
			o.results(value(n))
		}
	})
	if len(results) != 2 || string(results[1]["text/plain"]) != `"xx"` || !strings.Contains(text,
		"more results were left out") {
		t.Errorf("got %d results, %q", len(results), text)
	}
}
