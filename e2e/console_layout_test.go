package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
)

// faults is a script that returns the faults of a page's layout, a line for each. Text of users and
// programs (pre, .text, .preview) may break anywhere, and
// so may words of more than 30 characters.
const faults = `(() => {
	const faults = new Set();
	const root = document.documentElement;
	if (root.scrollWidth > innerWidth) {
		const wide = [...document.querySelectorAll("main *")].find((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("pre, .scroll, .text, .plot svg"));
		faults.add("the page is " + root.scrollWidth + " pixels wide" + (wide ? ": " + wide.outerHTML.slice(0, 200) : ""));
	}
	for (const body of document.querySelectorAll("table.list tbody")) {
		const heights = [...body.rows].filter((r) => !r.querySelector("details[open]")).map((r) => Math.round(r.getBoundingClientRect().height));
		if (heights.length && Math.max(...heights) - Math.min(...heights) > 1) faults.add("rows of different height: " + heights.join(", "));
	}
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	canvas.canvas.width = canvas.canvas.height = 1;
	const paint = (colours) => { canvas.clearRect(0, 0, 1, 1); for (const c of colours) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); } return canvas.getImageData(0, 0, 1, 1).data; };
	const light = (data) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => { const v = data[i] / 255; return sum + share * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); }, 0);
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let node = walker.nextNode(); node; node = walker.nextNode()) {
		const text = node.data.trim(), parent = node.parentElement;
		if (!text || parent.closest("script, style, noscript, option, .skip, svg, dialog:not([open]), [popover]:not(:popover-open):not(:where(*))") || !parent.checkVisibility({contentVisibilityAuto: false})) continue;
		const range = document.createRange();
		range.selectNodeContents(node);
		if (!range.getClientRects().length) continue;
		if (!parent.closest("pre, .text, .preview, .scroll, .xterm")) {
			for (const word of node.data.matchAll(/[\p{L}\p{N}_]+/gu)) {
				if (word[0].length > 30) continue; // it may not fit
				range.setStart(node, word.index);
				range.setEnd(node, word.index + word[0].length);
				const tops = [...range.getClientRects()].map((r) => Math.round(r.top));
				if (Math.max(...tops) - Math.min(...tops) > 4) faults.add("broken word: " + word[0].slice(0, 60) + " in <" + parent.localName + " class=" + parent.className + ">");
			}
		}
		if (parent.closest(":disabled, .xterm")) continue;
		const grounds = [];
		for (let e = parent; e; e = e.parentElement) grounds.unshift(getComputedStyle(e).backgroundColor);
		grounds.unshift(getComputedStyle(root).colorScheme && matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#fff");
		const ground = light(paint(grounds)), ink = light(paint([...grounds, getComputedStyle(parent).color]));
		const ratio = (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
		if (ratio < 4.5) faults.add("contrast " + ratio.toFixed(2) + ": " + text.slice(0, 40) + " in <" + parent.localName + " class=" + parent.className + ">");
	}
	return [...faults].join("\n");
})()`

// checkLayout checks pages at all widths in both schemes.
func (b *browser) checkLayout(s *server, data string, pages []consolePage) {
	b.t.Helper()
	for _, page := range pages {
		b.open(s.url + "/console/" + page.path)
		if page.complete != "" {
			b.until(page.complete)
		}
		for _, width := range consoleWidths {
			b.run(chromedp.EmulateViewport(int64(width), 900))
			for _, scheme := range []string{"light", "dark"} {
				b.colours(scheme)
				if found := evaluate[string](b, faults); found != "" {
					b.t.Errorf("/console/%s with %s data, %s, %d pixels:\n%s", page.path, data, scheme, width, found)
				}
			}
		}
		if size := evaluate[float64](b, `performance.getEntriesByType("resource").filter((r) => r.initiatorType === "script" || r.name.endsWith("js")).reduce((sum, r) => sum + r.decodedBodySize, 0)`); size > 150<<10 &&
			!strings.HasSuffix(page.path, "/terminals") {
			b.t.Errorf("/console/%s loads %.0f bytes of scripts", page.path, size)
		}
	}
}

// lists are the pages that any project has.
func lists() (pages []consolePage) {
	for _, path := range []string{"", "responses", "responses?status=waiting", "responses?search=zzz", "responses?sort=cost&range=14d", "refused", "health", "retention", "responses?tool=shell&key=key_none", "responses?tag=a:b", "containers",
		"containers?name=zzz", "new", "connect", "compare", "templates/none", "files?q=zzz",
		"traces", "end-users", "storage", "snapshots", "webhooks", "usage", "usage?by=tool", "audit?action=none", "responses/resp_none"} {
		pages = append(pages, consolePage{path, path, ""})
	}
	for _, path := range nounLists {
		pages = append(pages, consolePage{path, path, ""})
	}
	return pages
}

// TestConsoleLayout opens every page with empty, hostile and rich data at all widths in both schemes: no page is wider
// than its window, no word is broken inside, rows of a list have one height, and text has 4.5:1 on its ground.
func TestConsoleLayout(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1280)
	b.checkLayout(s, "empty", lists())

	long := strings.Repeat("Donaudampfschiff", 12)
	s.inBackground(long + " " + attack)
	s.inBackground("# **" + strings.Repeat("very long title ", 20) + "**\n" + fence("echo "+long+"; exit 7"))
	asks := s.asking(long + "\n" + fence("echo "+long, "echo b"))
	s.waitUntil("it asks", func() bool {
		_, text := s.fetch("/console/")
		return strings.Contains(text, `name="all" value="approve"`)
	})
	named, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: long})
	if err != nil {
		t.Fatal(err)
	}
	s.trace(`{"object":"trace","id":"trace_long","workflow_name":"` + long + `","group_id":"` + long + `","metadata":null}`)
	for _, name := range []string{"", long} {
		options := []string{"webhook", "create", "--state", s.state, "http://127.0.0.1:9/" + long}
		if name != "" {
			options = append(options, "--name", name)
		}
		if out, errs, err := s.berth(options...); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
	}
	s.snapshotNamed(named.ID, long)
	s.create("holds", map[string]any{"reason": long + " " + attack[:200]})
	s.create("holds", map[string]any{"reason": attack[:200], "object_id": named.ID})
	tagged := shellTask(long + " " + attack)
	tagged.Metadata = map[string]string{long[:60]: long + " " + attack[:100], "team": attack[:100]}
	hung, err := s.client().Responses.New(t.Context(), tagged)
	if err != nil {
		t.Fatal(err)
	}
	s.e2bTemplate("long-"+strings.ToLower(long[:60]), map[string]any{"fromTemplate": "base",
		"startCmd": "echo '" + long + `<img src=x onerror="window.pwned=1">'; exec sleep 100000`, "readyCmd": "true"})
	b.open(s.url + "/console/storage")
	template := strings.TrimPrefix(evaluate[string](b, `document.querySelector('main a[href^="/console/templates/"]').pathname`),
		"/console/")
	hostile := append(lists(), consolePage{"", "containers/" + named.ID, ""},
		consolePage{"", "containers/" + named.ID + "/snapshots", ""},
		consolePage{"", "containers/" + named.ID + "/network", ""},
		consolePage{"", "responses/" + asks.ID, ""}, consolePage{"", "responses?open=" + asks.ID, ""},
		consolePage{"", "traces/trace_long", ""},
		consolePage{"", "end-users/" + s.endUser(strings.ReplaceAll(long+" "+attack, "\n", " ")[:500]), ""}, consolePage{"", template, ""}, consolePage{"", "responses/" + hung.ID, ""},
		consolePage{"", "responses?tag=" + url.QueryEscape("team:"+attack[:100]), ""},
		consolePage{"", "compare?a=" + hung.ID + "&b=" + asks.ID, ""}, consolePage{"", "compare?a=" + hung.ID, ""})
	hostile = append(hostile, s.nouns(long[:100]+" "+attack[:100])...)
	b.checkLayout(s, "hostile", hostile)
	b.open(s.url + "/console/webhooks")
	if links := evaluate[[]string](b, `[...document.querySelectorAll("table .main a")].map((a) => a.innerText)`); len(links) != 2 ||
		!strings.HasPrefix(links[0], "http://") || !strings.HasPrefix(links[1], "http://") {
		t.Errorf("webhooks are linked as %q, want their URLs", links)
	}
	for _, page := range hostile {
		b.open(s.url + "/console/" + page.path)
		checkHarmless(b, page.path, "main script, main img, main iframe, main style")
	}

	s = newServer(t)
	b.checkLayout(s, "rich", tour(s, b))
	b.checkLayout(s, "rich", operatorTour(s, b))
	b.checkQuiet()
}

// snapshotNamed takes a snapshot of a container.
func (s *server) snapshotNamed(container, name string) {
	s.t.Helper()
	s.create("containers/"+container+"/snapshots", map[string]any{"name": name[:min(60, len(name))]})
}

// TestConsoleAttention approves a command on the first page, whose count and title say that something waits, and
// stays there; the keyboard leads to the buttons.
func TestConsoleAttention(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1400)
	const hostile = `echo '<img src=x onerror="window.pwned=1">' | tee made`
	asks := s.asking("# Push **the branch**\n" + fence(hostile))
	s.waitUntil("it asks", func() bool {
		_, text := s.fetch("/console/")
		return strings.Contains(text, "data-approval")
	})
	b.open(s.url + "/console/containers") // any page has the count
	b.until(`document.title.startsWith("(1) ") && document.querySelector("#nav [data-waiting]").innerText === "1"`)
	b.open(s.url + "/console/responses")
	b.shows("#chains .state", "Needs approval")
	b.shows("#chains .main", "Push the branch") // without the marks of Markdown
	b.open(s.url + "/console/responses?status=waiting")
	b.shows("#chains .main", "Push the branch")
	b.click("#chains .main a") // opens beside the list
	b.until(`new URLSearchParams(location.search).get("open") !== null`)
	b.shows(".drawer .approval", hostile)
	b.open(s.url + "/console/")
	b.shows(".approval pre", hostile)
	checkHarmless(b, "home", "main script, main img, main iframe, main style")
	b.run(chromedp.KeyEvent("a"))
	b.until(`document.activeElement.value === "approve"`)
	b.run(chromedp.KeyEvent("\r"))
	b.until(`location.pathname === "/console/" && document.querySelector(".approval") === null`)
	s.waitUntil("the command has run", func() bool {
		_, text := s.fetch("/console/responses?status=completed")
		return strings.Contains(text, asks.ID) == false && strings.Contains(text, "Push the branch")
	})
	b.open(s.url + "/console/containers")
	b.shows("table .main", "Push the branch") // a container is called like the run that has made it
	b.until(`!document.title.startsWith("(")`)

	b.run(chromedp.KeyEvent("?"))
	b.until(`document.getElementById("keys").open`)
	b.run(chromedp.KeyEvent("\x1b"))
	b.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.until(`document.getElementById("palette").open`)
	// Enter follows what was typed, though the page still shows what was found for its first letter.
	evaluate[bool](b, `(() => {
		const real = fetch;
		window.held = [];
		window.fetch = async (...request) => {
			if (String(request[0]).includes("q=pu")) await new Promise((go) => held.push(go));
			return real(...request);
		};
		return true;
	})()`)
	b.run(chromedp.KeyEvent("p"))
	b.shows("#palette li.picked", "Runs")
	b.run(chromedp.KeyEvent("ush the"), chromedp.KeyEvent("\r"))
	evaluate[int](b, `held.map((go) => go()).length`)
	b.until(`location.pathname.startsWith("/console/responses/") || location.pathname.startsWith("/console/containers/")`)
	b.checkQuiet()
}

// TestConsoleNewPages sends the pages of this design hostile queries, and requests of strangers.
func TestConsoleNewPages(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1280)
	const hostile = `%22%3E%3Cimg%20src=x%20onerror=window.pwned=1%3E`
	for _, path := range []string{"?x=", "palette?q=", "responses?range=", "responses?sort=cost&range=", "responses?sort=", "refused?after=1&x=", "retention?after=1&x=", "responses?key=", "responses?tool=", "responses?status=completed&range=", "usage?by=", "new?from=",
		"containers?name=", "responses?open=", "responses?tag=", "compare?a=", "files?q=", "skills?q=", "templates/"} {
		b.open(s.url + "/console/" + path + hostile)
		checkHarmless(b, path, "main img, main script, body > img, li img")
	}
	_, other := twoProjects(t, s)
	running := s.inBackground("Secret of the first project")
	for _, path := range []string{"waiting", "palette?q=secret", "usage.csv", "usage?by=tool", "compare", "templates/base", "refused", "health", "retention", "responses?sort=cost",
		"compare?a=" + running.ID, "responses?tag=a:b", "responses?open=" + running.ID,
		"new?from=" + running.ID} {
		resp, err := http.Get(s.url + "/console/" + path) // without a session
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if !strings.HasPrefix(resp.Request.URL.Path, "/console/sign-in") {
			t.Errorf("%s: got %s at %s without a key", path, resp.Status, resp.Request.URL)
		}
	}
	b.open(s.url + "/console/")
	b.write("#key", other)
	b.shows("h1", "Home")
	for _, path := range []string{"palette?q=secret", "responses", "responses?open=" + running.ID, "new?from=" + running.ID, "compare",
		"compare?a=" + running.ID} {
		b.open(s.url + "/console/" + path)
		if text := b.text(); strings.Contains(text, "Secret of") {
			t.Errorf("%s shows another project: %s", path, fmt.Sprintf("%.200s", text))
		}
	}
	b.checkQuiet()
}
