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

// tour fills a server with what its pages can show, and returns the paths of the pages.
func tour(s *server) []string {
	s.t.Helper()
	first := s.inBackground("Count the boats in the harbour\n" + fence("seq 3; echo 'no such boat' >&2; sleep 0.2", "printf 'name,length\\nAda,12\\n' > boats.csv; exit 3"))
	s.waitUntil("the response has ended", func() bool {
		out, _, err := s.berth("response", "ls", "--json")
		return err == nil && strings.Contains(out, `"completed"`)
	})
	last := s.goOn(first.ID, "# Report\n\n| name | length |\n|---|---|\n| Ada | 12 |\n\nSee `boats.csv` and [the list](https://example.com).")
	s.goOn(first.ID, "And the ferries?")
	s.asking(fence("touch asked"))
	s.trace(`{"object":"trace","id":"trace_1","workflow_name":"Harbour master","group_id":"morning","metadata":null},` +
		tracedSpan("span_1", "", 0, 2400, `{"type":"agent","name":"Harbour master"}`) + "," +
		tracedSpan("span_2", "span_1", 10, 1100, `{"type":"response","response_id":"`+last+`","usage":{"input_tokens":812,"output_tokens":96}}`) + "," +
		tracedSpan("span_3", "span_1", 1120, 1500, `{"type":"function","name":"tide"}`) + "," +
		tracedSpan("span_4", "span_1", 1510, 2390, `{"type":"generation","model":"scripted","usage":{"input_tokens":990,"output_tokens":41}}`))
	if out, errs, err := s.berth("webhook", "create", "--state", s.state, "--name", "harbour", "http://127.0.0.1:9/"); err != nil {
		s.t.Fatalf("%v: %s%s", err, out, errs)
	}
	pages := []string{"", "responses", "new", "responses/" + last, "responses/" + first.ID, "responses/" + last + "/branches", "overview", "usage", "traces", "traces/trace_1", "storage", "webhooks", "audit", "sign-in?add=1", "unknown"}
	containers, errs, err := s.berth("ps", "-q", "--no-trunc")
	if err != nil {
		s.t.Fatalf("%v: %s", err, errs)
	}
	return append(pages, "containers/"+strings.Fields(containers)[0])
}

// tracedSpan returns a span that starts and ends at milliseconds.
func tracedSpan(id, parent string, start, end int, data string) string {
	at := func(ms int) string { return fmt.Sprintf("2026-01-01T00:00:%02d.%03d+00:00", ms/1000, ms%1000) }
	above := "null"
	if parent != "" {
		above = `"` + parent + `"`
	}
	return fmt.Sprintf(`{"object":"trace.span","id":%q,"trace_id":"trace_1","parent_id":%s,"started_at":%q,"ended_at":%q,"span_data":%s,"error":null}`, id, above, at(start), at(end), data)
}

// colours makes pages light or dark.
func (b *browser) colours(scheme string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		b.t.Fatal(err)
	}
}

// TestConsoleAccessible checks every page with axe-core, in light and dark, in wide and narrow windows, and
// that no page is wider than its window.
func TestConsoleAccessible(t *testing.T) {
	axe, err := os.ReadFile(filepath.Join("node", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skipf("skipped: no axe-core; make test-clients installs it: %v", err)
	}
	s := newServer(t)
	pages := tour(s)
	b := newBrowser(t, 1200)
	for _, width := range []int{360, 1200, 3840} {
		for _, scheme := range []string{"light", "dark"} {
			b.run(chromedp.EmulateViewport(int64(width), 900))
			b.colours(scheme)
			for _, page := range pages {
				b.open(s.url + "/console/" + page)
				evaluate[string](b, `document.querySelectorAll("details").forEach((d) => { d.open = true }) ?? ""`)
				if wide := evaluate[int](b, "document.documentElement.scrollWidth"); wide > width {
					t.Errorf("/console/%s is %d pixels wide in a window of %d", page, wide, width)
				}
				evaluate[string](b, string(axe)+`; ""`)
				raw, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`axe.run({resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => ({id: v.id, impact: v.impact, nodes: v.nodes.map((n) => n.html)}))))`, chromedp.EvalAwaitPromise))
				if err != nil {
					t.Fatal(err)
				}
				var found []struct {
					ID, Impact string
					Nodes      []string
				}
				if err := json.Unmarshal([]byte(raw), &found); err != nil {
					t.Fatal(err)
				}
				for _, v := range found {
					if v.Impact == "serious" || v.Impact == "critical" {
						t.Errorf("/console/%s, %s, %d pixels: %s: %s\n%s", page, scheme, width, v.Impact, v.ID, strings.Join(v.Nodes[:min(3, len(v.Nodes))], "\n"))
					}
				}
			}
		}
	}
	b.checkQuiet()
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
				if !evaluate[bool](b, `getComputedStyle(document.activeElement).outlineStyle !== "none" || document.activeElement.matches("input, select, textarea")`) {
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
	b.shows(".turn:has(+ #next) .state", "completed")
}
