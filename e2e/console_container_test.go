package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// TestConsoleResources sees a chart move while a container computes, and a refused connection with its
// reason.
func TestConsoleResources(t *testing.T) {
	s := newServer(t)
	c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "box"},
		option.WithJSONSet("network_policy", map[string]any{"type": "allowlist",
			"allowed_domains": []string{"allowed.example"}}))
	if err != nil {
		t.Fatal(err)
	}
	id := c.ID
	page := s.url + "/console/containers/" + id + "/resources"
	b := newBrowser(t, 1200)
	b.open(page)
	b.shows("#charts", "Memory")
	b.shows("#flows", "No connections yet")
	b.until(`document.querySelector("#charts polyline").getAttribute("points").split(" ").length > 2`) // it moves
	s.in(id, "setsid -f sh -c 'while [ ! -e stop ]; do :; done' >/dev/null 2>&1 </dev/null; exit 0")
	b.until(`parseInt(document.querySelector("#charts .now").innerText) >= 5`)
	s.in(id, "touch stop; head -c 20000000 /dev/urandom > big; curl -s --max-time 20 http://refused.example/ || true")
	b.until(`(() => { const y = document.querySelectorAll("#charts polyline")[2].getAttribute("points").split(" ").map((p) => parseFloat(p.split(",")[1])); return y.at(-1) < y[0]; })()`)
	b.shows("#flows tr", "refused.example")
	b.shows("#flows .bad", "refused")
	b.until(`document.querySelector("#flows tr:has(.bad) [data-label=Reason]").innerText.trim() !== ""`)
	b.checkQuiet()
	b.open(s.url + "/console/containers/" + id + "/network")
	b.shows(".chips", "allowed.example")
	b.shows("table .main", "refused.example")
	b.shows("table tbody tr", "curl -s") // by whom
	s.waitUntil("the server has a sample of its life", func() bool {
		_, list := s.fetch("/console/containers")
		return strings.Count(list, `class="sparkline"`) == 2
	})
	b.open(page + "?range=15m")
	b.shows(".chips [aria-current]", "15 min")
	if _, text := s.fetch("/console/containers/" + id + "/resources"); !strings.Contains(text, "refused.example") ||
		!strings.Contains(text, "<polyline") {
		t.Error("without scripts, the page lacks the connections or the charts")
	}
	b.run(chromedp.EmulateViewport(360, 800))
	b.open(page)
	b.shows("#flows tr", "refused.example")
	if width := evaluate[int](b, "document.documentElement.scrollWidth"); width > 360 {
		t.Errorf("the page is %d pixels wide in a window of 360", width)
	}
}

// TestConsolePorts opens a port in a frame, whose page has no rights on the console.
func TestConsolePorts(t *testing.T) {
	s := newServer(t)
	id := s.namedContainer("box")
	cmd := s.command("exec", "-i", id, "--", "tee", "index.html")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(probeHTML, `["out", "https://berth.invalid/"]`,
		`["out", "/console/sign-out"]`))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.in(id, "setsid -f python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 </dev/null; until curl -s -o /dev/null http://127.0.0.1:8123/; do sleep 0.1; done")
	b := newBrowser(t, 1200)
	page := s.url + "/console/containers/" + id + "/ports"
	b.open(page)
	b.write("#port", "99999")
	b.shows("[role=alert]", "1 to 65535")
	b.write("#port", "8123")
	b.until(`document.querySelector(".port iframe") !== null`)
	b.click(".qr summary")
	b.until(`document.querySelector(".qr svg path").getBoundingClientRect().width > 100`)
	b.shows(".qr", "the server's own machine")
	got := reports(b)
	for _, want := range []string{"parent:refused", "top:refused", "cookie:refused", "storage:refused", "origin=null",
		"from null"} {
		if !strings.Contains(got, want) {
			t.Errorf("the port reports %q, want %q", got, want)
		}
	}
	for _, path := range []string{"/console/", "/v1/containers", "/console/sign-out"} { // what it has sent was refused
		s.waitUntil(path+" is refused", func() bool { return s.logs("method=POST", "path="+path+" ", "status=403") })
	}
	if where := evaluate[string](b, "location.href"); where != page {
		t.Errorf("the port has moved the console to %s", where)
	}
	link := evaluate[string](b, `document.querySelector(".port a").href`)
	resp, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("the link: got %s with %v", resp.Status, resp.Header)
	}
}

// TestConsoleChange pauses, resumes, forks, snapshots, restores and deletes a container in a browser.
func TestConsoleChange(t *testing.T) {
	s := newServer(t)
	id := s.namedContainer("box")
	s.in(id, "echo original > a.txt")
	b := newBrowser(t, 1200)
	page := s.url + "/console/containers/" + id
	b.open(page)
	b.click(`button[value="pause"]`)
	b.shows(".pagehead .state", "Paused")
	b.click(`button[value="resume"]`)
	b.shows(".pagehead .state", "Running")

	b.run(chromedp.SendKeys(chromedp.CSS("#name"), "copy"))
	b.click(`button[value="fork"]`)
	b.shows("h1", "copy")
	b.until(fmt.Sprintf("location.pathname !== %q", "/console/containers/"+id))
	fork := evaluate[string](b, `location.pathname.split("/").at(-1)`)
	if out := s.in(fork, "cat a.txt"); out != "original\n" {
		t.Errorf("the fork has %q", out)
	}

	b.open(page)
	b.run(chromedp.SendKeys(chromedp.CSS("#name"), `<img src=x onerror=window.pwned=1>`))
	b.click(`button[value="snapshot"]`)
	b.shows(".tabs [aria-current]", "Snapshots")
	b.shows(".timeline", "onerror")
	checkHarmless(b, "the timeline", "main script, main img, main iframe, main style")
	s.in(id, "echo changed > a.txt")
	b.click(`.timeline button`)
	b.shows("h1", "onerror")
	restored := evaluate[string](b, `location.pathname.split("/").at(-1)`)
	if out := s.in(restored, "cat a.txt"); out != "original\n" || restored == id {
		t.Errorf("the restored container has %q", out)
	}

	b.open(s.url + "/console/containers/" + restored + "/snapshots")
	b.shows(".timeline", "Restored from the snapshot")
	b.open(s.url + "/console/containers/" + fork + "/snapshots")
	b.shows(".timeline", "Forked from")
	b.open(s.url + "/console/snapshots")
	checkHarmless(b, "snapshots", "main script, main img, main iframe, main style")
	b.shows("td", "onerror")
	b.click(`td details summary`)
	b.click(`td details button`)
	b.shows("main", "No snapshot yet")

	b.open(s.url + "/console/containers/" + restored)
	b.click(".act summary")
	b.click(`button[value="delete"]`)
	b.shows("h1", "Containers")
	b.until(`!document.body.innerText.includes("onerror")`)
	b.checkQuiet()
	b.run(chromedp.EmulateViewport(360, 800))
	for _, path := range []string{"containers/" + id, "snapshots", "containers/" + id + "/ports"} {
		b.open(s.url + "/console/" + path)
		if width := evaluate[int](b, "document.documentElement.scrollWidth"); width > 360 {
			t.Errorf("/console/%s is %d pixels wide in a window of 360", path, width)
		}
	}
}
