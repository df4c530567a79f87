package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/internal/longtest"
)

// chain stores a chain of responses and returns the id of the last.
func (s *server) chain(turns int) (last string) {
	s.t.Helper()
	for i := range turns {
		task := responses.ResponseNewParams{Model: "scripted",
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(
				fmt.Sprintf("Turn %d: what is in the harbour?", i+1))}}
		if last != "" {
			task.PreviousResponseID = openai.String(last)
		}
		r, err := s.client().Responses.New(s.t.Context(), task)
		if err != nil {
			s.t.Fatal(err)
		}
		last = r.ID
	}
	return last
}

// scroll scrolls a page up to its start, a step each frame, until it shows a number of responses. It keeps
// the milliseconds of each frame in the page's frames_.
func (b *browser) scroll(turns int) {
	b.t.Helper()
	evaluate[string](b, fmt.Sprintf(`window.frames_ = []; window.scrolled_ = false; scrollTo(0, document.documentElement.scrollHeight); (() => {
		let before = performance.now();
		const step = (now) => {
			frames_.push(now - before); before = now;
			scrollBy(0, -120);
			if (scrollY === 0 && document.querySelectorAll(".turn").length >= %d) { scrolled_ = true; return; }
			requestAnimationFrame(step);
		};
		requestAnimationFrame(step);
	})() ?? ""`, turns))
	b.until("scrolled_")
	want := make([]string, turns)
	for i := range want {
		want[i] = fmt.Sprintf("Turn %d: what is in the harbour?", i+1)
	}
	if got := evaluate[[]string](b,
		`[...document.querySelectorAll(".turn .user .text")].map((e) => e.textContent.trim())`); !slices.Equal(got,
		want) {
		b.t.Errorf("the page shows %d messages of the user, want %d in their order: %q", len(got), turns, got)
	}
}

// TestConsoleEarlier scrolls through a chain: earlier responses appear above, and those in view stay there.
func TestConsoleEarlier(t *testing.T) {
	s := newServer(t)
	const turns = 45
	last := s.chain(turns)
	b := newBrowser(t, 1200)
	b.open(s.url + "/console/responses/" + last)
	b.until(`document.querySelectorAll(".turn").length >= 40`)
	if top := evaluate[float64](b,
		`[...document.querySelectorAll(".turn")].find((e) => e.textContent.includes("Turn 26:")).getBoundingClientRect().top`); top < 0 ||
		top > 600 {
		t.Errorf("what was the first response is now at %v pixels", top)
	}
	b.scroll(turns)
	if n := evaluate[int](b,
		`[...document.querySelectorAll(".turn a")].filter((a) => a.textContent === "Continue from here").length`); n != turns-1 {
		t.Errorf("%d responses can be continued from, want all %d but the last", n, turns-1)
	}
	b.click(`.turn a[href^="/console/responses/"]:not(:has(code))`)
	b.until(`document.querySelectorAll(".turn").length === 1`)
	b.checkQuiet()
	if _, page := s.fetch("/console/responses/" + last); strings.Count(page, `class="turn"`) != 20 ||
		!strings.Contains(page, "Earlier responses of the chain</a>") {
		t.Error("without scripts, the page does not lead to the earlier responses")
	}
}

// TestConsoleLongChain opens a chain of 1,000 responses, scrolls through it, and reports how long the first
// paint and the frames of the scroll take.
func TestConsoleLongChain(t *testing.T) {
	longtest.Skip(t)
	s := newServer(t)
	const turns = 1000
	last := s.chain(turns)
	b := newBrowser(t, 1200)
	b.open(s.url + "/console/responses/" + last) // parses the templates
	// The first is a line of text, to compare with.
	for _, path := range []string{"/healthz", "/console/responses/" + last, "/console/responses", "/console/",
		"/console/overview", "/console/new"} {
		b.open(s.url + path)
		b.until(`performance.getEntriesByName("first-contentful-paint").length > 0`)
		t.Logf("%.20s: first paint after %.0f ms; the server took %.0f ms", path,
			evaluate[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`),
			evaluate[float64](b, `performance.getEntriesByType("navigation")[0].responseEnd`))
	}
	b.open(s.url + "/console/responses/" + last)
	b.scroll(turns)
	const sorted = "frames_.toSorted((a, b) => a - b)"
	t.Logf("scrolling up: %.0f frames, the median after %.1f ms, 99 of 100 within %.1f ms, the slowest after %.1f ms",
		evaluate[float64](b, "frames_.length"),
		evaluate[float64](b, sorted+"[frames_.length >> 1]"),
		evaluate[float64](b, sorted+"[Math.floor(frames_.length * .99)]"), evaluate[float64](b, "Math.max(...frames_)"))
}

// TestConsolePaint reports for every page how long its first paint and the server's part of it take.
func TestConsolePaint(t *testing.T) {
	longtest.Skip(t)
	s := newServer(t)
	b := newBrowser(t, 1280)
	for _, page := range tour(s, b) {
		var paints, answers []float64
		for range 6 {
			b.open(s.url + "/console/" + page.path)
			b.until(`performance.getEntriesByName("first-contentful-paint").length > 0`)
			paints = append(paints, evaluate[float64](b,
				`performance.getEntriesByName("first-contentful-paint")[0].startTime`))
			answers = append(answers, evaluate[float64](b, `performance.getEntriesByType("navigation")[0].responseEnd`))
		}
		// The first visit fills caches.
		paints, answers = slices.Sorted(slices.Values(paints[1:])), slices.Sorted(slices.Values(answers[1:]))
		t.Logf("| %s | %.0f | %.0f |", page.name, answers[2], paints[2])
	}
}
