package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// holdFetches makes the page's requests whose address has a word wait for release, and lets those that were withdrawn
// answer nevertheless: the order of answers is the test's.
func (b *browser) holdFetches(word string) {
	b.t.Helper()
	evaluate[bool](b, `(() => {
		const real = fetch;
		window.held = [];
		window.late = 0; // answers that have come after their release
		window.fetch = async (url, options) => {
			if (!String(url).includes("`+word+`")) return real(url, options);
			await new Promise((go) => held.push(go));
			const answer = await real(url);
			const text = answer.text.bind(answer);
			answer.text = async () => { const all = await text(); setTimeout(() => late++, 0); return all; };
			return answer;
		};
		return true;
	})()`)
}

// TestConsoleTypedSearch types into the search boxes of lists. Rows follow without a reload; an answer to what was typed
// earlier never replaces the rows, though it comes last; without scripts, the same form answers with a page.
func TestConsoleTypedSearch(t *testing.T) {
	s := newServer(t)
	for name, team := range map[string]string{"Count the boats": "red", "Count the ferries": "blue", "Weigh the anchor": "red"} {
		task := shellTask(name + "\n" + fence("true"))
		task.Metadata = map[string]string{"team": team}
		if _, err := s.client().Responses.New(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
	b := newBrowser(t, 1280)
	only := func(selector, words string) {
		t.Helper()
		b.until(`(() => { const rows = [...document.querySelectorAll("` + selector + `")]; return rows.length === 1 && rows[0].innerText.includes("` +
			words + `"); })()`)
	}
	page := s.url + "/console/responses"
	b.open(page)
	b.until(`document.querySelectorAll("#chains .main").length === 3 && document.readyState === "complete"`)
	evaluate[bool](b, `(() => { window.same = true; return true; })()`)
	b.holdFetches("search=count+the+b")
	b.onNode(chromedp.Focus(chromedp.CSS("#search")))
	b.run(chromedp.KeyEvent("count the b"))
	b.until(`held.length === 1`) // the search is on its way
	b.run(chromedp.KeyEvent("\b"), chromedp.KeyEvent("ferr"))
	only("#chains .main", "ferries")
	b.shows("#found", "1 found")
	evaluate[int](b, `held.map((go) => go()).length`) // the older answer comes last
	b.until(`late === 1`)
	only("#chains .main", "ferries")
	if found := evaluate[bool](b, `window.same === true && new URLSearchParams(location.search).get("search") === "count the ferr"`); !found {
		t.Error("the list was loaded anew, or its address lacks the search")
	}
	evaluate[bool](b, `(() => { const box = document.querySelector("#search"); box.value = ""; box.dispatchEvent(new Event("input", {bubbles: true})); return true; })()`)
	b.until(`document.querySelectorAll("#chains .main").length === 3`)
	s.inBackground("Paint the hull\n" + fence("true"))
	b.shows("#chains .main", "Paint the hull") // the list is followed again

	b.open(page + "?tag=team:blue")
	only("#chains .main", "ferries")
	b.click("#chains .main a")
	b.shows(".runbar .tag", "team: blue")
	b.run(chromedp.Evaluate[chromedp.Void](`document.querySelector(".runbar .tag").click()`))
	b.shows("#filters .chips", "tag: team:blue")
	only("#chains .main", "ferries")
	b.click(`#filters a[aria-label^="With tag"]`)
	b.until(`document.querySelectorAll("#chains .main").length === 4`)

	b.open(s.url + "/console/containers")
	b.onNode(chromedp.Focus(chromedp.CSS("#name")))
	b.run(chromedp.KeyEvent("ANCHOR"))
	only("#list .main", "Weigh the anchor")
	b.run(chromedp.KeyEvent("\r")) // a page of its own
	only("#list .main", "Weigh the anchor")

	s.storedFile("tides.txt", "noon", openai.FilePurposeUserData)
	s.storedFile("winds.txt", "west", openai.FilePurposeUserData)
	b.open(s.url + "/console/files")
	b.onNode(chromedp.Focus(chromedp.CSS("#q")))
	b.run(chromedp.KeyEvent("Tide"))
	only("#list .main", "tides.txt")
	_, text := s.fetch("/console/files?q=wind") // as without scripts
	if strings.Contains(text, "tides.txt") || !strings.Contains(text, "winds.txt") {
		t.Error("the page of a search has other files than it asks for")
	}
	b.checkQuiet()
}

// TestConsoleTemplate looks at a template that the project has built: its build with the log, its start command, and the
// containers that use it; and makes a container from it and from one of the server.
func TestConsoleTemplate(t *testing.T) {
	s := newServer(t)
	build := s.e2bTemplate("harbour", map[string]any{"fromTemplate": "base", "readyCmd": "test -s /home/user/starts",
		"startCmd": "echo started | tee -a /home/user/starts; exec sleep 100000"})
	if build.Status != "ready" {
		t.Fatalf("got %+v", build)
	}
	b := newBrowser(t, 1280)
	b.open(s.url + "/console/storage")
	b.shows("table .main", "harbour")
	b.click(`table .main a[title^="harbour"]`)
	b.shows("h1", "harbour")
	b.shows(".facts", "exec sleep 100000")
	b.shows(".facts", "test -s /home/user/starts")
	b.shows("#template .state", "Completed")
	b.shows("#template td", "default")
	b.shows(`pre[aria-label="Log"]`, "started")
	b.shows("main", "No container uses it.")
	page := evaluate[string](b, "location.pathname")
	b.click("form.ask button")
	b.until(`location.pathname.startsWith("/console/containers/cntr_")`)
	container := evaluate[string](b, `location.pathname.split("/").at(-1)`)
	if got := s.in(container, "cat /home/user/starts"); !strings.Contains(got, "started") {
		t.Errorf("the container has %q", got)
	}
	b.open(s.url + page)
	b.until(`document.querySelector('main a[href="/console/containers/` + container + `"]') !== null`)

	b.open(s.url + "/console/storage")
	b.click(`table .main a[href^="/console/templates/sha256:"]`)
	b.shows(".facts", "for all projects")
	b.write("#name", "mine")
	b.shows("h1", "mine")
	b.click(`.facts a[href^="/console/templates/"]`)
	b.shows("table .main", "mine")
	checkHarmless(b, "a template", "main img, main script")
	b.checkQuiet()
}

// TestConsoleCompare chooses two runs and shows what differs.
func TestConsoleCompare(t *testing.T) {
	s := newServer(t)
	first, err := s.client().Responses.New(t.Context(), shellTask("Count\n"+fence("echo one")))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.client().Responses.New(t.Context(), shellTask("Count\n"+fence("echo one", "echo two")))
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, 1280)
	b.open(s.url + "/console/responses/" + first.ID)
	b.click(".runbar details summary")
	b.click(`.runbar a[href^="/console/compare"]`)
	b.shows("form.ask", "Count")
	b.choose("#b", second.ID)
	b.click("form.ask button")
	b.shows("table tr", "Calls of shell")
	b.shows("table tr", "Output tokens")
	if sides := evaluate[int](b, `document.querySelectorAll(".sides section").length`); sides != 2 {
		t.Errorf("got %d runs", sides)
	}
	b.shows(".diff .new", "+")
	b.click(".actions a") // swapped
	b.shows(".diff .gone", "−")
	b.checkQuiet()
}

// TestConsoleUsageRuns goes from the usage of a key and of a tool to the runs that it is made of.
func TestConsoleUsageRuns(t *testing.T) {
	s := newServer(t)
	ann, bob := s.createKey("--name", `ann <img src=x onerror="window.pwned=1">`), s.createKey("--name", "bob")
	for key, task := range map[string]string{ann: "Weigh the anchor\n" + fence("true"), bob: "Paint the hull"} {
		if _, err := s.client(option.WithAPIKey(key)).Responses.New(t.Context(), shellTask(task)); err != nil {
			t.Fatal(err)
		}
	}
	b := newBrowser(t, 1280)
	s.signInWith(b, ann)
	for _, path := range []string{"usage?by=api_key_id", "usage?by=tool"} {
		b.open(s.url + "/console/" + path)
		b.run(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("table.list .main a")].find((a) => /ann|shell/.test(a.innerText)).click()`))
		b.shows("#chains .main", "Weigh the anchor")
		b.until(`document.querySelectorAll("#chains .main").length === 1`)
		checkHarmless(b, path, "main img, main script")
		b.click(`#filters a[aria-label$="show all"]`)
		b.until(`document.querySelectorAll("#chains .main").length === 2`)
	}
	b.checkQuiet()
}
