package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// colours makes pages light or dark.
func (b *browser) colours(scheme string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		b.t.Fatal(err)
	}
}

// TestConsoleAccessible checks every page with axe-core, in light and dark, at each of the widths, and that
// no page is wider than its window.
func TestConsoleAccessible(t *testing.T) {
	axe, err := os.ReadFile(filepath.Join("node", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skipf("skipped: no axe-core; scripts/setup clients installs it: %v", err)
	}
	s := newServer(t)
	b := newBrowser(t, 1280)
	for _, pages := range []func(*server, *browser) []consolePage{tour, operatorTour} {
		for _, page := range pages(s, b) {
			b.open(s.url + "/console/" + page.path)
			evaluate[string](b, `document.querySelectorAll("details").forEach((d) => { d.open = true }) ?? ""`)
			evaluate[string](b, string(axe)+`; ""`)
			for _, width := range consoleWidths {
				b.run(chromedp.EmulateViewport(int64(width), 900))
				if wide := evaluate[int](b, "document.documentElement.scrollWidth"); wide > width {
					t.Errorf("/console/%s is %d pixels wide in a window of %d", page.path, wide, width)
				}
				for _, scheme := range []string{"light", "dark"} {
					b.colours(scheme)
					b.checkAccessible(fmt.Sprintf("/console/%s, %s, %d pixels", page.path, scheme, width))
				}
			}
		}
	}
	b.checkQuiet()
}

// checkAccessible fails the test for what axe-core, which the page has, finds serious or critical.
func (b *browser) checkAccessible(where string) {
	b.t.Helper()
	raw, err := chromedp.Run(b.ctx,
		chromedp.Evaluate[string](
			`axe.run({resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => ({id: v.id, impact: v.impact, nodes: v.nodes.map((n) => n.html)}))))`,
			chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", where, err)
	}
	var found []struct {
		ID, Impact string
		Nodes      []string
	}
	if err := json.Unmarshal([]byte(raw), &found); err != nil {
		b.t.Fatalf("%s: %v", where, err)
	}
	for _, v := range found {
		if v.Impact == "serious" || v.Impact == "critical" {
			b.t.Errorf("%s: %s: %s\n%s", where, v.Impact, v.ID, strings.Join(v.Nodes[:min(3, len(v.Nodes))], "\n"))
		}
	}
}

// TestConsoleKeyboard reaches everything by the Tab key: the link past the header, a row, a page, its
// waterfall and a form.
func TestConsoleKeyboard(t *testing.T) {
	s := newServer(t)
	r := s.inBackground("Walk the pier\n" + fence("true"))
	b := newBrowser(t, 1000)
	b.open(s.url + "/console/responses/" + r.ID)
	b.until(`document.querySelector("#text") !== null && document.querySelector(".waterfall") !== null`)
	b.open(s.url + "/console/responses")
	b.shows("#chains", "Walk the pier")
	press := func(keys string) {
		t.Helper()
		b.run(chromedp.KeyEvent(keys))
	}
	tabTo := func(selector string) {
		t.Helper()
		for range 80 {
			press(kb.Tab)
			if evaluate[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
				if !evaluate[bool](b,
					`getComputedStyle(document.activeElement).outlineStyle !== "none" || document.activeElement.matches("input, select, textarea")`) {
					t.Errorf("the focus on %s is not visible", selector)
				}
				return
			}
		}
		t.Fatalf("the Tab key does not reach %s", selector)
	}
	tabTo(".skip")
	press(kb.Enter)
	b.until(`document.activeElement.id === "main"`)
	tabTo("#chains td a")
	press(kb.Enter)
	b.until(`document.querySelector("#text") !== null`)
	tabTo(".time summary")
	press(kb.Enter)
	b.until(`document.querySelector(".time details").open === false`)
	tabTo("#text")
	press("Walk back")
	tabTo("#text ~ button")
	press(kb.Enter)
	b.until(`document.querySelectorAll(".turn").length === 2`)
	b.shows(".turn:has(+ #next) .state", "Completed")
}
