package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleScreenshots writes a picture of each page into the directory BERTH_SCREENSHOTS, in light and
// dark. `make screenshots` runs it.
func TestConsoleScreenshots(t *testing.T) {
	dir := os.Getenv("BERTH_SCREENSHOTS")
	if dir == "" {
		t.Skip("skipped: BERTH_SCREENSHOTS names no directory; run make screenshots")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := newServerWith(t, "containers: {pool: 0}\n")
	pages := tour(s)
	b := newBrowser(t, 1200)
	for _, page := range pages {
		name, about, _ := strings.Cut(page, "/")
		switch {
		case page == "":
			name = "containers"
		case name == "containers":
			name = "container"
		case strings.HasSuffix(about, "/branches"):
			name = "branches"
		case name == "responses" && about != "":
			name = "response"
		case name == "traces" && about != "":
			name = "trace"
		case page == "unknown", strings.HasPrefix(page, "sign-in"):
			continue
		}
		for _, scheme := range []string{"light", "dark"} {
			b.colours(scheme)
			b.open(s.url + "/console/" + page)
			picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+"-"+scheme+".png"), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
