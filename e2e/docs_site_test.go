package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// siteWidths are those of a telephone and of a laptop.
var siteWidths = []int{390, 1280}

// sitePages returns the paths of all pages of the documentation that the navigation leads to, below /docs/.
func sitePages(s *server, b *browser) []string {
	b.t.Helper()
	seen := map[string]bool{}
	var all []string
	for _, page := range []string{"", "decisions/", "api/"} {
		b.open(s.url + "/docs/" + page)
		for _, href := range evaluate[[]string](b, `[...document.querySelectorAll("#nav a")].map((a) => a.href)`) {
			path := strings.TrimPrefix(href, s.url+"/docs/")
			if !seen[path] {
				seen[path] = true
				all = append(all, path)
			}
		}
	}
	return append(all, "api/schemas/Response.html", "none")
}

// TestDocsSite opens each page of the documentation at both widths in both schemes: none is wider than its window, no
// word is broken inside, text has 4.5:1 on its ground, and neither the policy nor a script complains. The script of a
// page is small.
func TestDocsSite(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1280)
	pages := sitePages(s, b)
	if len(pages) < 110 {
		t.Fatalf("the navigation has only %d pages", len(pages))
	}
	for _, page := range pages {
		b.open(s.url + "/docs/" + page)
		for _, width := range siteWidths {
			b.run(chromedp.EmulateViewport(int64(width), 900))
			for _, scheme := range []string{"light", "dark"} {
				b.colours(scheme)
				if found := evaluate[string](b, faults); found != "" {
					t.Errorf("/docs/%s, %s, %d pixels:\n%s", page, scheme, width, found)
				}
			}
		}
		if page == "none" {
			continue // its status is in the console of the browser
		}
		if size := evaluate[float64](b, scriptSize); size > 20<<10 {
			t.Errorf("/docs/%s loads %.0f bytes of scripts", page, size)
		}
		if cookies := evaluate[string](b, "document.cookie"); cookies != "" {
			t.Errorf("/docs/%s sets cookies: %s", page, cookies)
		}
	}
	b.checkQuiet()
}

const scriptSize = `performance.getEntriesByType("resource").filter((r) => r.initiatorType === "script").reduce((sum, r) => sum + r.decodedBodySize, 0)`

// TestDocsAccessible checks one page of each kind with axe-core, and the search.
func TestDocsAccessible(t *testing.T) {
	axe, err := os.ReadFile(filepath.Join("node", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skipf("skipped: no axe-core; scripts/setup clients installs it: %v", err)
	}
	s := newServer(t)
	b := newBrowser(t, 1280)
	for _, page := range []string{"", "install.html", "configuration.html", "threat-model.html", "performance.html", "decisions/",
		"api/", "api/containers.html", "api/schemas/Response.html", "none", "search"} {
		search := page == "search"
		b.open(s.url + "/docs/" + strings.TrimPrefix(page, "search"))
		evaluate[string](b, `document.querySelectorAll("details").forEach((d) => { d.open = true }) ?? ""`)
		evaluate[string](b, string(axe)+`; ""`)
		if search {
			b.click("[data-find]")
			b.run(chromedp.SendKeys(chromedp.CSS("#find input"), "volume"))
			b.shows("#hits", "Volumes")
		}
		for _, width := range siteWidths {
			b.run(chromedp.EmulateViewport(int64(width), 900))
			for _, scheme := range []string{"light", "dark"} {
				b.colours(scheme)
				b.checkAccessible(fmt.Sprintf("/docs/%s, %s, %d pixels", page, scheme, width))
			}
		}
	}
	b.checkQuiet()
}

// TestDocsSearch searches by the keyboard alone: a setting, a route, a page, and a word of no page.
func TestDocsSearch(t *testing.T) {
	s := newServer(t)
	for _, width := range siteWidths {
		b := newBrowser(t, width)
		search := func(words string) {
			t.Helper()
			b.open(s.url + "/docs/decisions/0019-sleep.html") // a page in a directory
			b.run(chromedp.KeyEvent("/"))
			b.until(`document.getElementById("find").open && document.activeElement.matches("#find input")`)
			b.run(chromedp.SendKeys(chromedp.CSS("#find input"), words))
		}
		search("memory of the server")
		b.shows("#hits", "Configuration › Memory")
		search("volumes")
		b.until(`document.querySelector("#hits :first-child b")?.innerText === "Volumes"`)
		b.run(chromedp.KeyEvent(kb.ArrowDown))
		b.until(`document.querySelector("#find input").getAttribute("aria-activedescendant") === "hit1"`)
		b.run(chromedp.KeyEvent(kb.ArrowUp), chromedp.KeyEvent(kb.Enter))
		b.until(`location.pathname === "/docs/volumes.html" && document.querySelector("h1")?.innerText === "Volumes"`)
		search("cancel a response")
		b.shows("#hits [role=option]", "API reference › Cancel a response")
		search("xyzzy<img src=x onerror=alert(1)>")
		b.shows("#find [role=status]", "Nothing is found")
		b.run(chromedp.KeyEvent(kb.Escape))
		b.until(`!document.getElementById("find").open`)
		b.checkQuiet()
	}
}

// TestDocsReading reads without scripts, by the menu of a telephone, and copies a block.
func TestDocsReading(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 390)
	b.open(s.url + "/docs/install.html")
	b.click(".menu")
	b.until(`document.getElementById("nav").matches(":popover-open")`)
	b.click(`#nav a[href="rootless.html"]`)
	b.until(`location.pathname === "/docs/rootless.html" && document.readyState === "complete"`)
	previous := evaluate[string](b, `document.querySelector(".turn [rel=prev]").href`)
	b.click(".turn [rel=prev]")
	b.until(fmt.Sprintf(`location.href === %q && document.readyState === "complete"`, previous))
	b.open(s.url + "/docs/install.html")
	b.until(`document.querySelector(".copy") !== null`)
	b.click(".copy")
	b.until(`document.querySelector(".copy").classList.contains("done")`)
	b.checkQuiet()

	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.open(s.url + "/docs/tls.html")
	b.click(".menu")
	b.until(`document.querySelector('#nav a[aria-current="page"]').checkVisibility()`)
	b.click(".menu")
	b.until(`!document.querySelector("#nav").checkVisibility() && document.querySelector("article pre").checkVisibility()`)
	if evaluate[bool](b, `document.querySelector(".find").checkVisibility()`) {
		t.Error("a search is offered that does nothing without scripts")
	}
}

// TestDocsWithoutKey serves the documentation to everyone, also while the server has keys, and no file beside it.
func TestDocsWithoutKey(t *testing.T) {
	s := newServer(t)
	twoProjects(t, s)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for path, want := range map[string]int{"/docs": 308, "/docs/": 200, "/docs/install.html": 200, "/docs/install.md": 200,
		"/docs/api/": 200, "/docs/containers": 308, "/docs/none": 404, "/docs/..%2f..%2f..%2fetc%2fpasswd": 404,
		"/docs/%2e%2e%2fgo.mod": 404, "/docs/assets/..%5c..%5cgo.mod": 404, "/docs//evil.example/..": 307} {
		resp, err := client.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		location := resp.Header.Get("Location")
		if resp.StatusCode != want && !(want == 307 && slices.Contains([]int{301, 307, 404}, resp.StatusCode)) ||
			strings.HasPrefix(location, "//") || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: got %s to %q, want %d", path, resp.Status, location, want)
		}
	}
}
