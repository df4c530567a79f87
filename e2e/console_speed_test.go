package e2e

import (
	"fmt"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/internal/longtest"
)

// TestConsoleLongChain opens a chain of 1,000 responses, goes through it page by page, and reports how long
// the first paint and the frames of a scroll take.
func TestConsoleLongChain(t *testing.T) {
	longtest.Skip(t)
	s := newServer(t)
	const turns = 1000
	last := ""
	for i := range turns {
		task := responses.ResponseNewParams{Model: "scripted", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(fmt.Sprintf("Turn %d: what is in the harbour?", i+1))}}
		if last != "" {
			task.PreviousResponseID = openai.String(last)
		}
		r, err := s.client().Responses.New(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		last = r.ID
	}
	b := newBrowser(t, 1200)
	b.open(s.url + "/console/responses/" + last) // parses the templates
	for _, path := range []string{"responses/" + last, "responses", "", "overview"} {
		b.open(s.url + "/console/" + path)
		b.until(`performance.getEntriesByName("first-contentful-paint").length > 0`)
		t.Logf("/console/%.9s: first paint after %.0f ms; the server took %.0f ms", path, evaluate[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`),
			evaluate[float64](b, `performance.getEntriesByType("navigation")[0].responseEnd`))
	}
	b.open(s.url + "/console/responses/" + last)
	evaluate[string](b, `window.frames_ = null; (() => {
		const took = []; let before = performance.now();
		const step = (now) => {
			took.push(now - before); before = now;
			const y = scrollY; scrollBy(0, 120);
			if (scrollY === y) { window.frames_ = took; return; }
			requestAnimationFrame(step);
		};
		requestAnimationFrame(step);
	})() ?? ""`)
	b.until("window.frames_ !== null")
	t.Logf("scrolling a page: %.0f frames, the median after %.1f ms, the slowest after %.1f ms", evaluate[float64](b, "frames_.length"),
		evaluate[float64](b, "frames_.toSorted((a, b) => a - b)[frames_.length >> 1]"), evaluate[float64](b, "Math.max(...frames_)"))
	seen := 0
	for page := 0; page < turns/20+1; page++ {
		seen += evaluate[int](b, `document.querySelectorAll(".turn").length`)
		if !evaluate[bool](b, `[...document.querySelectorAll("main a")].some((a) => a.textContent.startsWith("Earlier responses"))`) {
			break
		}
		before := evaluate[string](b, "location.pathname")
		evaluate[string](b, `[...document.querySelectorAll("main a")].find((a) => a.textContent.startsWith("Earlier responses")).click() ?? ""`)
		b.until(fmt.Sprintf("location.pathname !== %q && document.readyState === 'complete'", before))
	}
	if seen != turns {
		t.Errorf("the pages show %d responses, want %d", seen, turns)
	}
	b.shows(".user", "Turn 1: what")
}
