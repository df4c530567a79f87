package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
)

// TestConsoleTime looks at where the time of a response went: the start of the container, calls of the
// model, a tool and its command; and at the branches of its chain and a search.
func TestConsoleTime(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1200)
	first := s.inBackground("Measure the harbour\n" + fence("sleep 0.3; exit 3"))
	b.open(s.url + "/console/responses/" + first.ID)
	b.shows(".turn:has(+ #next) .state", "Completed")
	for _, kind := range []string{"model", "tool", "container"} { // while the page is open
		b.until(fmt.Sprintf(`document.querySelector(".waterfall tr.%s rect.bar") !== null`, kind))
	}
	b.open(s.url + "/console/responses/" + first.ID) // as stored
	b.shows(".waterfall tr.container", "start container (cold)")
	b.shows(".waterfall tr.tool", "shell: sleep 0.3")
	b.shows(".waterfall tr.tool", "exit 3")
	b.shows(".waterfall tr.model", " in, ")
	if order := evaluate[bool](b,
		`[...document.querySelectorAll(".waterfall rect.bar")].map((r) => +r.getAttribute("x")).every((x, i, all) => i === 0 || x >= all[i - 1])`); !order {
		t.Error("the bars are not in the order of their starts")
	}
	if rows := evaluate[int](b, `document.querySelectorAll(".waterfall tr.command").length`); rows != 0 {
		t.Errorf("the only command of a call has %d bars of its own", rows)
	}

	second, third := s.goOn(first.ID, "Sail to the north"), s.goOn(first.ID, "Sail to the south")
	s.goOn(third, "Anchor")
	b.open(s.url + "/console/responses/" + second + "/branches")
	b.shows(".tree > li > a", "Measure the harbour")
	if branches := evaluate[[]string](b,
		`[...document.querySelectorAll(".tree .tree a")].map((a) => a.innerText)`); len(branches) != 2 ||
		branches[0] != "Sail to the north" || branches[1] != "Sail to the south" {
		t.Errorf("got the branches %q", branches)
	}
	b.shows(".tree .tree li:last-child", "2 responses")
	b.shows(".tree a[aria-current]", "Sail to the north")

	for words, want := range map[string]int{"THE SOUTH": 1, "sleep 0.3": 1, "nothing like this": 0} {
		b.open(s.url + "/console/responses")
		b.write("#search", words) // without a mouse
		b.until(`location.search.includes("search=")`)
		b.until(fmt.Sprintf(`document.querySelectorAll("#chains tbody tr").length === %d`, want))
	}
	b.open(s.url + "/console/responses?search=" + `%22%3E%3Cimg%20src=x%20onerror=window.pwned=1%3E`)
	checkHarmless(b, "a search", "main img")
	b.checkQuiet()
}

// goOn continues a response and returns the id of the next.
func (s *server) goOn(previous, input string) string {
	s.t.Helper()
	task := shellTask(input)
	task.PreviousResponseID = openai.String(previous)
	r, err := s.client().Responses.New(s.t.Context(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.ID
}

// TestConsoleOperations looks at the pages for the operator of a server without keys, receives a webhook
// and has it sent again.
func TestConsoleOperations(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1200)
	received := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received <- r.Header.Get("webhook-id")
	}))
	t.Cleanup(hook.Close)
	if out, errs, err := s.berth("webhook", "create", "--state", s.state, "--name",
		`<img src=x onerror="window.pwned=1">`, hook.URL); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	ended := s.inBackground("calm")
	id := <-received
	b.open(s.url + "/console/webhooks")
	checkHarmless(b, "webhooks", "main img")
	b.click(`main a[href^="/console/webhooks/"]`)
	b.until(`location.pathname.startsWith("/console/webhooks/") && document.readyState === "complete"`)
	// The delivery is saved after it was received. Each reload is complete before the next: one would cancel the other.
	for page := evaluate[string](b, "location.href"); !evaluate[bool](b,
		`document.querySelector(".delivered") !== null`); {
		b.open(page)
	}
	b.shows("td", ended.ID[len(ended.ID)-8:])
	b.click("td button")
	if again := <-received; again != id {
		t.Errorf("the delivery was sent again as %s, want %s", again, id)
	}
	b.click(`form.search button`)
	b.shows(`[role="status"]`, "The endpoint answered 200")
	<-received

	b.open(s.url + "/console/overview") // as it was called
	b.shows(".tiles", "Running")
	b.shows("h2", "Disk")
	b.shows("h2", "Upstreams")
	b.open(s.url + "/console/usage?days=30")
	b.shows("td", "scripted")
	b.until(`document.querySelector(".columns rect.bar") !== null`)
	b.open(s.url + "/console/usage?days=90&period=month&by=kind")
	b.shows("td", "responses")
	b.shows("figcaption", "by month")
	b.open(s.url + "/console/storage")
	b.shows("h2", "Templates")
	b.shows("td", "recipe")
	b.open(s.url + "/console/audit")
	b.click(`form[method="post"] button`)
	b.shows(`[role="status"]`, "The record is valid")
	b.open(s.url + "/console/audit?action=container.created")
	b.checkQuiet()
}

// TestConsoleAdmin signs in with an admin key, creates a project and a key, which is shown once, adds that
// key to the session, switches, and deletes the key.
func TestConsoleAdmin(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1200)
	s.key = s.createKey("--admin") // the only key
	s.signInWith(b, s.key)
	b.open(s.url + "/console/projects")
	b.write("#name", `Harbour <img src=x onerror="window.pwned=1">`)
	b.shows("h1", "Harbour <img")
	checkHarmless(b, "a project", "main img")
	b.write("#name", "laptop") // the browser asks for a role: the form selects none
	b.until(`document.querySelector("#role").matches(":invalid") && document.querySelector(".once") === null`)
	b.choose("#role", "runner")
	evaluate[bool](b, `(() => { document.querySelector("#name").value = ""; return true; })()`)
	b.write("#name", "laptop")
	b.shows(".once", "not shown again")
	key := evaluate[string](b, `document.querySelector("#new-key").textContent`)
	project := evaluate[string](b, "location.pathname")
	b.open(s.url + project)
	if evaluate[bool](b, fmt.Sprintf("document.documentElement.outerHTML.includes(%q)", key)) {
		t.Error("the key is shown twice")
	}
	b.shows("td", "laptop")
	b.shows("td", "runner")

	b.open(s.url + "/console/sign-in?add=1")
	b.run(chromedp.SendKeys(chromedp.CSS("#own"), "sk-of-somebody"))
	b.write("#key", key)
	b.shows(`[role="alert"]`, "The session has no such key")
	b.run(chromedp.SendKeys(chromedp.CSS("#own"), s.key))
	b.write("#key", key)
	b.shows("h1", "Home")
	b.open(s.url + project)
	b.shows("h1", "Error 403") // the key of a project administers nothing
	b.open(s.url + "/console/audit")
	b.shows("h1", "Error 403")
	b.open(s.url + "/console/")
	b.shows("h1", "Home")
	b.shows(".project option", "Harbour <img") // the project by its name
	evaluate[bool](b, `(() => { const to = document.querySelector(".project select"); to.value = "0"; return to.dispatchEvent(new Event("change", {bubbles: true})); })()`)
	b.shows("h2", "Server")
	b.open(s.url + "/console/audit")
	b.shows("td", "key.created")
	b.click(`main form[method="post"] button`)
	b.shows(`[role="status"]`, "The record is valid")

	b.open(s.url + project)
	b.click(`details:has(#project-limit) summary`)
	b.write("#project-limit", "12.5")
	b.shows(".facts", "12.5")
	b.click(`details:has(#confirm) summary`)
	b.write("#confirm", "another name")
	b.shows("h1", "Error 400") // nothing is archived without its name
	b.open(s.url + project)
	b.click("td details summary")
	b.click("button.danger")
	b.until(`!document.body.innerText.includes("laptop")`)
	b.open(s.url + "/console/admin-keys")
	b.click("td details summary")
	b.click("button.danger")
	b.shows("h1", "Error 409") // the last key
	b.checkQuiet()
}
