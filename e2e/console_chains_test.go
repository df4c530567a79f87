package e2e

import (
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
)

// TestConsoleChains follows the list of responses in a browser: rows appear, change and get
// longer without a reload, and the filters leave some out.
func TestConsoleChains(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1200)
	b.open(s.url + "/console/responses")
	b.shows("#chains", "No run yet")

	first := s.inBackground("Build the harbour\n" + fence("while [ ! -e go ]; do sleep 0.05; done; exit 3"))
	b.shows("#chains tbody tr", "Build the harbour")
	b.shows("#chains .state", "Running")
	containers := func() string {
		t.Helper()
		list, err := s.client().Containers.List(t.Context(), openai.ContainerListParams{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Data {
			return c.ID
		}
		return ""
	}
	s.waitUntil("the container is listed", func() bool { return containers() != "" })
	b.run(chromedp.Focus(chromedp.CSS("#chains tbody a")))
	if out, errs, err := s.berth("exec", containers(), "--", "touch", "go"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	b.shows("#chains .state", "Completed")
	if !evaluate[bool](b, `document.activeElement.matches("#chains tbody a")`) {
		t.Error("a row that changed has lost the focus")
	}

	task := shellTask("Go on")
	task.PreviousResponseID = openai.String(first.ID)
	second, err := s.client().Responses.New(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	b.until(`document.querySelector("#chains tbody a").pathname.endsWith("` + second.ID + `")`)
	if rows := evaluate[[]string](b,
		`[...document.querySelectorAll("#chains tbody tr")].map((r) => r.cells[1].innerText + "|" + r.cells[3].innerText)`); len(rows) != 1 ||
		rows[0] != "Build the harbour|2" {
		t.Errorf("got the rows %q, want one chain of two responses with the title of the first", rows)
	}

	endless := s.inBackground(attack + fence("sleep 1000"))
	b.shows("#chains tr", "window.pwned=1") // it is shown as text
	checkHarmless(b, "the list",
		`main script, main img, main iframe, main svg:not(.chart svg, .icon, .meter svg, .plot svg), main style, main form:not(.search, .ask, .approval, .actions form)`)
	for filter, want := range map[string]int{"status=completed": 1, "status=in_progress": 1, "status=failed": 0,
		"model=" + url.QueryEscape(endless.Model): 2, "model=unknown": 0,
		"after=" + second.ID: 1} {
		b.open(s.url + "/console/responses?" + filter)
		if rows := evaluate[int](b, `document.querySelectorAll("#chains tbody tr").length`); rows != want {
			t.Errorf("%s: got %d rows, want %d", filter, rows, want)
		}
	}
	b.open(s.url + "/console/responses?model=" + url.QueryEscape(`"><b id=item-x>`))
	checkHarmless(b, "a filter", `#item-x`)
	b.open(s.url + "/console/responses?status=unknown")
	b.shows("h1", "Error 400")

	b.open(s.url + "/console/responses?status=in_progress") // the filter holds while the list is followed
	b.shows("#chains .state", "Running")
	if _, err := s.client().Responses.Cancel(t.Context(), endless.ID); err != nil {
		t.Fatal(err)
	}
	b.shows("#chains", "No run here")
	b.checkQuiet()
}

// TestConsoleChainsOfOthers: the list has no responses of another project.
func TestConsoleChainsOfOthers(t *testing.T) {
	s := newServer(t)
	mine, other := twoProjects(t, s)
	if _, err := s.client().Responses.New(t.Context(), shellTask("Secret of the first project")); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, 800)
	b.open(s.url + "/console/responses")
	b.write("#key", other)
	b.shows("#chains", "No run yet")
	b.click(".menu") // the window is narrow
	b.click("header .session button")
	b.shows("h1", "Sign in")
	b.open(s.url + "/console/responses")
	b.write("#key", mine)
	b.shows("#chains", "Secret of the first project")
	b.checkQuiet()
}
