package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
)

// namedContainer creates a container and returns its id.
func (s *server) namedContainer(name string) string {
	s.t.Helper()
	c, err := s.client().Containers.New(s.t.Context(), openai.ContainerNewParams{Name: name})
	if err != nil {
		s.t.Fatal(err)
	}
	return c.ID
}

// in runs a script in a container.
func (s *server) in(container, script string) string {
	s.t.Helper()
	out, errs, err := s.berth("exec", container, "--", "sh", "-c", script)
	if err != nil {
		s.t.Fatalf("%s: %v: %s%s", script, err, out, errs)
	}
	return out
}

// fetch returns a page of the console as another client gets it.
func (s *server) fetch(path string) (*http.Response, string) {
	s.t.Helper()
	resp, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	return resp, string(body)
}

// pixel is a GIF of one pixel.
const pixel = `printf 'GIF89a\001\000\001\000\200\000\000\377\000\000\377\377\377!\371\004\000\000\000\000\000,\000\000\000\000\001\000\001\000\000\002\002D\001\000;'`

// probeHTML tries what a page with rights on the console could do, and reports what has worked.
const probeHTML = `<!doctype html><title>probe</title><p id=shown>a page</p><script>
const got = [];
const attempt = (name, f) => { try { got.push(name + "=" + f()); } catch (e) { got.push(name + ":refused"); } };
attempt("parent", () => parent.document.title);
attempt("top", () => top.location.href);
attempt("cookie", () => document.cookie);
attempt("storage", () => localStorage.length);
attempt("navigate", () => { top.location = "about:blank#pwned"; });
(async () => {
  for (const [name, path] of [["fetch", "/console/"], ["api", "/v1/containers"], ["out", "https://berth.invalid/"]]) {
    try { await fetch(path, {mode: "no-cors", method: "POST"}); got.push(name + "=sent"); } catch { got.push(name + ":refused"); }
  }
  got.push("origin=" + self.origin);
  parent.postMessage(got.join(" "), "*");
})();
</script>`

// reports reloads the only frame of the page and returns the message that it sends.
func reports(b *browser) string {
	b.t.Helper()
	evaluate[bool](b, `(() => { window.heard = undefined; addEventListener("message", (e) => { window.heard = e.data + " from " + e.origin; });
		const f = document.querySelector("iframe"); f.src = f.src; return true; })()`)
	b.until(`window.heard !== undefined`)
	return evaluate[string](b, `window.heard`)
}

// TestConsoleFiles looks at files of every kind, drops some, and downloads them.
func TestConsoleFiles(t *testing.T) {
	s := newServer(t)
	id := s.namedContainer("box")
	hostile := `<img src=x onerror="window.pwned=1">.txt`
	s.in(id, `mkdir -p out/deep many && `+pixel+` > pixel.gif && printf 'name,n\n"<b id=item-x>a</b>, b",1\nc,2\n' > out/table.csv &&
		printf 'hello\n' > out/deep/a.txt && printf '%%PDF-1.4\n' > a.pdf && printf 'a\000b' > binary && printf '# Title\n\n<script>window.pwned=1</script>\n' > read.md &&
		ln -s /etc/passwd link && for i in $(seq 600); do : > many/f$i; done`)
	for name, text := range map[string]string{hostile: attack, "page.html": probeHTML,
		"evil.svg": `<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=1"><script>parent.pwned=1</script></svg>`} {
		cmd := s.command("exec", "-i", id, "--", "tee", name)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	page := s.url + "/console/containers/" + id + "/files"
	at := func(path string) string { return page + "?path=" + url.QueryEscape(path) }
	b := newBrowser(t, 1400)

	b.open(s.url + "/console/containers/" + id)
	b.click(`.tabs a[href$="/files"]`)
	b.shows(".filetree", "pixel.gif")
	b.shows(".filetree", "onerror") // a name is shown as text
	checkHarmless(b, "the tree", `main script, main img, main iframe, main svg:not(.icon), main style, #item-x`)
	// by keyboard; the page may replace the node at any time
	evaluate[bool](b, `document.querySelector('.filetree a[href$="out"]').focus() === undefined`)
	b.run(chromedp.KeyEvent("\r"))
	b.shows(".filetree", "table.csv")
	b.click(`.filetree a[href$="table.csv"]`)
	b.shows(".preview td", "<b id=item-x>a</b>, b")
	if rows := evaluate[int](b, `document.querySelectorAll(".preview tbody tr").length`); rows != 2 {
		t.Errorf("the table has %d rows, want 2", rows)
	}
	b.open(at("/mnt/data/out/deep/a.txt"))
	b.shows(".preview pre", "hello")
	b.click(".preview details:has(#edited) summary")
	b.run(chromedp.SendKeys(chromedp.CSS("#edited"), "edited <b>here</b>\n"))
	b.click("button[value=save]")
	b.shows(".preview pre", "edited <b>here</b>")
	if out := s.in(id, "cat out/deep/a.txt"); !strings.Contains(out, "hello") || !strings.Contains(out, "edited <b>here</b>\n") || strings.Contains(out, "\r") {
		t.Errorf("the edited file has %q", out)
	}
	b.click(".preview details:has(#edited) summary")
	s.in(id, "echo other > out/deep/a.txt")
	b.click("button[value=save]")
	b.shows("h1", "Error 409") // it has changed since
	if out := s.in(id, "cat out/deep/a.txt"); out != "other\n" {
		t.Errorf("the file that has changed has %q", out)
	}
	b.open(at("/mnt/data/" + hostile))
	b.shows(".preview pre", "window.pwned=1")
	checkHarmless(b, "a text", `main script, main img, main iframe, main svg:not(.icon), main style, #item-x`)
	b.open(at("/mnt/data/read.md"))
	b.shows(".preview h1", "Title")
	checkHarmless(b, "Markdown", `main script, main img, main iframe, main svg:not(.icon), main style`)
	b.open(at("/mnt/data/binary"))
	b.shows(".preview pre", "61 00 62")
	b.open(at("/mnt/data/pixel.gif"))
	b.until(`document.querySelector(".preview img").naturalWidth === 1`)
	b.open(at("/mnt/data/evil.svg"))
	b.shows(".preview", "evil.svg")
	checkHarmless(b, "an image", `main script, main iframe, main svg:not(.icon), main style`)
	b.open(at("/mnt/data/a.pdf"))
	b.until(`document.querySelector(".preview iframe") !== null`)
	b.open(at("/mnt/data/many"))
	b.shows(".filetree", "100 more are not shown")
	b.open(at("/mnt/data/link")) // leads within the container
	b.shows(".preview pre", "root:x:0:0")
	b.open(at("/etc"))
	b.shows(".filetree", "hostname")
	b.open(at("/mnt/data/none"))
	b.shows("h1", "Error 404")
	b.open(at("/mnt/data/../../etc/hostname"))
	b.shows(".preview h2", "hostname")

	b.checkQuiet()

	// A page of the container has an origin without rights, in its frame and in a window.
	b.open(at("/mnt/data/page.html"))
	got := reports(b)
	for _, want := range []string{"parent:refused", "top:refused", "cookie:refused", "storage:refused", "fetch:refused",
		"api:refused", "out:refused", "origin=null", "from null"} {
		if !strings.Contains(got, want) {
			t.Errorf("the preview reports %q, want %q", got, want)
		}
	}
	if where := evaluate[string](b, "location.href"); !strings.HasPrefix(where, page) {
		t.Errorf("the preview has moved the console to %s", where)
	}
	raw := strings.Replace(page, s.url, "", 1) + "/raw?path="
	for name, want := range map[string]string{"page.html": "text/html", "evil.svg": "image/svg+xml",
		"read.md": "text/plain", "a.pdf": "application/pdf"} {
		resp, _ := s.fetch(raw + "/mnt/data/" + name)
		csp := resp.Header.Get("Content-Security-Policy")
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), want) ||
			!strings.Contains(csp, "default-src 'none'") ||
			strings.Contains(csp, "allow-same-origin") || strings.Contains(csp, "sandbox") == (name == "a.pdf") ||
			resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %s with %v", name, resp.Status, resp.Header)
		}
	}

	b.open(at("/mnt/data/out"))
	evaluate[bool](b, `(() => { const files = new DataTransfer(); files.items.add(new File(["dropped"], "drop.txt")); files.items.add(new File(["x"], "<img src=x onerror=window.pwned=1>"));
		document.querySelector(".filetree").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true})); return true; })()`)
	b.shows(".filetree", "drop.txt")
	b.shows(".filetree", "onerror=window")
	checkHarmless(b, "a dropped name", `main script, main img, main iframe, main svg:not(.icon), main style`)
	download := strings.Replace(page, s.url, "", 1) + "/download?path="
	resp, body := s.fetch(download + "/mnt/data/out/drop.txt")
	if body != "dropped" || resp.Header.Get("Content-Disposition") != `attachment; filename=drop.txt` ||
		resp.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("got %q with %v", body, resp.Header)
	}
	_, body = s.fetch(download + "/mnt/data/out&format=zip")
	archive, err := zip.NewReader(bytes.NewReader([]byte(body)), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range archive.File {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); !strings.Contains(got, "out/drop.txt") || !strings.Contains(got,
		"out/deep/a.txt") {
		t.Errorf("the archive has %s", got)
	}
	if files, err := s.client().Containers.Files.List(t.Context(), id,
		openai.ContainerFileListParams{Limit: openai.Int(1), Order: "desc"}); err != nil || len(files.Data) != 1 ||
		files.Data[0].Source != "user" {
		t.Errorf("%v, %+v: want a file of the user", err, files)
	}

	// A directory is made elsewhere, gets a file, and is deleted.
	b.open(at("/tmp"))
	b.click("details:has(#name) summary")
	b.write("#name", "new one")
	b.shows(".preview h2", "/tmp/new one")
	b.run(chromedp.Evaluate[chromedp.Void](
		`(() => { const f = new DataTransfer(); f.items.add(new File(["elsewhere"], "e.txt")); document.querySelector("#file").files = f.files; })()`))
	b.click("form:has(#file) button")
	b.shows(".filetree", "e.txt")
	if out := s.in(id, `cat '/tmp/new one/e.txt'; stat -c %U '/tmp/new one'`); out != "elsewhereuser\n" {
		t.Errorf("got %q", out)
	}
	b.click(".preview details summary")
	b.click(".preview details button")
	b.shows(".preview h2", "/tmp")
	s.in(id, `test ! -e '/tmp/new one'`)

	b.run(chromedp.EmulateViewport(360, 800))
	for _, path := range []string{"/mnt/data", "/mnt/data/out/table.csv", "/mnt/data/" + hostile,
		"/mnt/data/page.html"} {
		b.open(at(path))
		if width := evaluate[int](b, "document.documentElement.scrollWidth"); width > 360 {
			t.Errorf("%s is %d pixels wide in a window of 360", path, width)
		}
	}
	if err := s.client().Containers.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// TestConsoleContainerAttacks sends forms and sockets for a container without their token, from other
// sites and for another project.
func TestConsoleContainerAttacks(t *testing.T) {
	s := newServer(t)
	_, other := twoProjects(t, s)
	id := s.namedContainer("box")
	s.in(id, "echo secret > a.txt")
	paths := []string{"", "/files", "/files?path=/mnt/data/a.txt", "/files/raw?path=/mnt/data/a.txt",
		"/files/download?path=/mnt/data/a.txt", "/terminals", "/resources", "/ports"}
	b := newBrowser(t, 800)
	b.open(s.url + "/console/")
	b.write("#key", other)
	b.shows("h1", "Home")
	for _, path := range paths {
		b.open(s.url + "/console/containers/" + id + path)
		b.shows("h1", "Error 404")
	}
	for _, path := range []string{"/resources/events", "/terminals/1/socket"} {
		if status := evaluate[int](b,
			fmt.Sprintf(
				`(() => { const r = new XMLHttpRequest(); r.open("GET", "/console/containers/%s%s", false); r.send(); return r.status; })()`,
				id, path)); status < 400 {
			t.Errorf("%s: got status %d", path, status)
		}
	}
	forms := []string{"", "/files", "/terminals", "/terminals/1/end", "/ports"}
	for _, path := range forms { // with the token of another project's session
		status := evaluate[int](b, fmt.Sprintf(`(() => { const r = new XMLHttpRequest(); r.open("POST", "/console/containers/%s%s", false); const d = new FormData();
			for (const [k, v] of Object.entries({form: document.querySelector("[name=form]").value, do: "delete", path: "/mnt/data/a.txt", port: "80"})) d.append(k, v); r.send(d); return r.status; })()`, id, path))
		if status != http.StatusNotFound {
			t.Errorf("another project's %q: got status %d, want 404", path, status)
		}
	}
	for _, path := range forms {
		for name, change := range map[string]func(*http.Request){"without a token": func(*http.Request) {},
			"of another site": func(r *http.Request) {
				r.Header.Set("Sec-Fetch-Site", "cross-site")
			}} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/console/containers/"+id+path,
				strings.NewReader("form=&do=delete"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			change(r)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%q %s: got %s", path, name, resp.Status)
			}
		}
	}
	if out := s.in(id, "cat a.txt"); out != "secret\n" {
		t.Errorf("after the attacks: got %q", out)
	}
}
