package templates

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/image"
)

// A build logs how far it is every ten seconds of its own time.
func TestLogProgress(t *testing.T) {
	var out bytes.Buffer
	report := logProgress(slog.New(slog.NewTextHandler(&out, nil)))
	for second := range 31 {
		p := image.Progress{Phase: image.Unpack, Done: second, Total: 379, Elapsed: time.Duration(second) * time.Second}
		if second == 30 {
			p.Phase, p.Done, p.Total = image.Finish, 0, 0
		}
		report(p)
	}
	for _, want := range []string{`phase=unpack elapsed=10s packages="10 of 379"`,
		`phase=unpack elapsed=20s packages="20 of 379"`, "phase=finish elapsed=30s\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &out)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
}
