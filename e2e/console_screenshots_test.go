package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// consoleWidths are the widths in pixels at which pages are looked at: a telephone, a tablet, a laptop and a large screen.
var consoleWidths = []int{390, 1024, 1280, 1680}

// TestConsoleScreenshots writes a picture of each page into the directory BERTH_SCREENSHOTS, in light and
// dark, for each of the widths: up to 2,400 pixels of the page's height. `make screenshots` runs it.
func TestConsoleScreenshots(t *testing.T) {
	dir := os.Getenv("BERTH_SCREENSHOTS")
	if dir == "" {
		t.Skip("skipped: BERTH_SCREENSHOTS names no directory; run make screenshots")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	b := newBrowser(t, 1280)
	b.take(dir, s, tour(s, b))
	b.take(dir, s, operatorTour(s, b))
}

// take writes pictures of pages into a directory.
func (b *browser) take(dir string, s *server, pages []consolePage) {
	b.t.Helper()
	for _, page := range pages {
		b.open(s.url + "/console/" + page.path)
		if page.complete != "" {
			b.until(page.complete)
		}
		for _, width := range consoleWidths {
			b.run(chromedp.EmulateViewport(int64(width), 800))
			height := min(2400, max(800, evaluate[int64](b, "document.documentElement.scrollHeight")))
			b.run(chromedp.EmulateViewport(int64(width), height))
			for _, scheme := range []string{"light", "dark"} {
				b.colours(scheme)
				picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
				if err != nil {
					b.t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", page.name, width, scheme)),
					picture, 0o644); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
}
