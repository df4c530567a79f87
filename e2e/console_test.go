package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// inBackground creates a response and returns when it runs.
func (s *server) inBackground(input string) *responses.Response {
	s.t.Helper()
	task := shellTask(input)
	task.Background = openai.Bool(true)
	r, err := s.client().Responses.New(s.t.Context(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// TestConsole looks at containers and responses in a browser on the server's machine, which
// needs no key: output appears before the command ends, and Cancel ends a response.
func TestConsole(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1200)
	b.open(s.url + "/console/containers")
	b.shows("main", "No container yet")

	running := s.inBackground(fence("echo first; while [ ! -e go ]; do sleep 0.05; done; echo last >&2; exit 3"))
	b.open(s.url + "/console/responses/" + running.ID)
	b.shows(".shell_call pre", "echo first")
	b.shows(".shell_call_output pre", "first")
	b.shows(".state", "Running")
	containers, err := s.client().Containers.List(t.Context(), openai.ContainerListParams{})
	if err != nil || len(containers.Data) != 1 {
		t.Fatalf("got %+v, %v, want one container", containers, err)
	}
	container := containers.Data[0].ID
	if out, errs, err := s.berth("exec", container, "--", "touch", "go"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	b.shows(".stderr", "last")
	b.shows(".shell_call_output .bad", "exit 3")
	b.shows(".state", "Completed")
	b.shows(".assistant", "exit 3")
	items := evaluate[int](b, `document.querySelectorAll(".item").length`)

	b.open(s.url + "/console/responses/" + running.ID) // the same, as stored
	b.shows(".shell_call_output .bad", "exit 3")
	b.shows(".shell_call .note", "s")
	if again := evaluate[int](b, `document.querySelectorAll(".item").length`); again != items || items != 4 {
		t.Errorf("the page shows %d items after a reload and %d before, want 4", again, items)
	}
	b.click(`main a[href^="/console/containers/"]`)
	b.shows(".pagehead .state", "Running")
	b.shows(".facts", "gvisor")
	b.shows(".command summary", "exit 3")
	b.click(".command:has(.stderr) summary") // "touch go" may have been logged after it
	b.shows(".command[open] .stderr", "last")
	b.click(`header .links a[href="/console/containers"]`)
	b.shows("table", "Running")

	endless := s.inBackground(fence("echo started; sleep 1000"))
	b.open(s.url + "/console/responses")
	b.write("#search", endless.ID) // without a mouse
	b.shows(".shell_call_output pre", "started")
	b.click(".runbar form button")
	b.shows(".state", "Cancelled")
	b.until(`document.querySelector(".runbar form button") === null`)
	b.checkQuiet()

	b.run(chromedp.EmulateViewport(360, 800)) // narrow pages do not scroll sideways
	for _, path := range []string{"", "containers", "responses", "new", "responses/" + running.ID, "containers/" + container} {
		b.open(s.url + "/console/" + path)
		if width := evaluate[int](b, "document.documentElement.scrollWidth"); width > 360 {
			t.Errorf("/console/%s is %d pixels wide in a window of 360", path, width)
		}
	}
}

// attack is text that would run if a page took it for HTML or for a link.
const attack = `<script>window.pwned=1</script><img src=x onerror="window.pwned=1">
[a](javascript:window.pwned=1) [b](data:text/html,x) ![c](https://berth.invalid/spy.png) <https://example.com/>
<svg onload="window.pwned=1"><a href="javascript:window.pwned=1">d</a> <iframe srcdoc="<script>parent.pwned=1</script>"></iframe>

<form action="/console/sign-out" method="post"><button autofocus>e</button></form>

<style>body{display:none}</style> {{.Form}} "><b id=item-x>
`

// TestConsoleText shows hostile text from everywhere: the user, the model, commands, their
// output, a container's name.
func TestConsoleText(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 800)
	c := s.client()
	named, err := c.Containers.New(t.Context(),
		openai.ContainerNewParams{Name: `"><img src=x onerror="window.pwned=1">`})
	if err != nil {
		t.Fatal(err)
	}
	live := s.inBackground(attack +
		fence("cat >file <<'END'\n"+attack+"END\ncat file; cat file >&2; while [ ! -e go ]; do sleep 0.05; done; cp file '<img src=x onerror=window.pwned=1>'") + attack)
	b.open(s.url + "/console/responses/" + live.ID)
	b.shows(".shell_call_output .stderr", "window.pwned")
	containers := c.Containers.ListAutoPaging(t.Context(), openai.ContainerListParams{})
	for containers.Next() {
		if id := containers.Current().ID; id != named.ID {
			if out, errs, err := s.berth("exec", id, "--", "touch", "go"); err != nil {
				t.Fatalf("%v: %s%s", err, out, errs)
			}
			b.shows(".state", "Completed")
			checkHarmless(b, "while it runs",
				`main script, main img, main iframe, main svg:not(.chart svg, .icon, .meter svg, .plot svg, .sparkline svg), main style, main form:not(.ask, .approval, .actions form)`)
			for _, path := range []string{"responses/" + live.ID, "containers/" + id, "containers/" + named.ID, "", "containers",
				"containers?name=" + `%22%3E%3Cimg%20src=x%20onerror=window.pwned=1%3E`} {
				b.open(s.url + "/console/" + path)
				checkHarmless(b, path,
					`main script, main img, main iframe, main svg:not(.chart svg, .icon, .meter svg, .plot svg, .sparkline svg), main style, main form:not(.search, .ask, .approval, .actions form)`)
			}
		}
	}
	b.open(s.url + "/console/responses/" + live.ID)
	b.shows(".text", "<script>window.pwned=1</script>") // it is shown as text
	b.checkQuiet()
}

// checkHarmless checks that a page has no element that only hostile text would bring, no
// handler, and no link but to pages.
func checkHarmless(b *browser, where, elements string) {
	b.t.Helper()
	if evaluate[bool](b, "window.pwned !== undefined") {
		b.t.Errorf("%s: text ran as a script", where)
	}
	if found := evaluate[string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.outerHTML).join("\n")`,
		elements)); found != "" {
		b.t.Errorf("%s: the page has\n%s", where, found)
	}
	if found := evaluate[string](b, `[...document.querySelectorAll("*")].filter((e) => [...e.attributes].some((a) => a.name.startsWith("on") || a.name === "style" ||
		/^\s*(javascript|data|vbscript):/i.test(a.value))).map((e) => e.outerHTML).join("\n")`); found != "" {
		b.t.Errorf("%s: the page has\n%s", where, found)
	}
}

// twoProjects gives a server keys of two projects.
func twoProjects(t *testing.T, s *server) (first, second string) {
	t.Helper()
	var keys []string
	for _, project := range []string{"proj_a", "proj_b"} {
		out, errs, err := s.berth("key", "create", "--project", project, "--state", s.state)
		if err != nil {
			t.Fatalf("key create: %v: %s", err, errs)
		}
		keys = append(keys, strings.TrimSpace(out[strings.LastIndex(out, "sk-"):]))
	}
	s.waitUntil("keys are required", func() bool {
		resp, err := http.Get(s.url + "/v1/models")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	})
	s.key = keys[0]
	return keys[0], keys[1]
}

// TestConsoleKeys signs in and out, and tries to reach another project and to use a session
// from another site.
func TestConsoleKeys(t *testing.T) {
	s := newServer(t)
	mine, other := twoProjects(t, s)
	running := s.inBackground(fence("sleep 1000"))
	path := "/console/responses/" + running.ID
	b := newBrowser(t, 800)

	b.open(s.url + path)
	b.shows("h1", "Sign in")
	b.write("#key", "sk-wrong")
	b.shows("[role=alert]", "Incorrect API key provided")
	b.write("#key", other)
	b.shows("h1", "Error 404")
	b.click(".menu") // the window is narrow
	b.click("header .session button")
	b.shows("h1", "Sign in")
	b.open(s.url + path)
	b.shows("h1", "Sign in")
	b.write("#key", mine)
	b.shows(".shell_call pre", "sleep 1000")
	if evaluate[bool](b, fmt.Sprintf("document.documentElement.outerHTML.includes(%q) || document.cookie !== ''",
		mine)) {
		t.Error("scripts of the page can read the key or the session")
	}
	b.checkQuiet()

	// A page of another site sends the form of a signed-in user.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w,
			`<iframe src="`+s.url+path+`"></iframe><form method="post" action="`+s.url+path+`/cancel"><button>win</button></form>`)
	}))
	defer evil.Close()
	b.open(strings.Replace(evil.URL, "127.0.0.1", "localhost", 1))
	b.until(`document.querySelector("iframe").contentDocument === null`) // it is of another origin, or refused
	b.click("button")
	b.shows("h1", "Error 403")
	now, err := s.client().Responses.Get(t.Context(), running.ID, responses.ResponseGetParams{})
	if err != nil || now.Status != "in_progress" {
		t.Errorf("after the attack: got %v, %v", now.Status, err)
	}
	b.open(s.url + path) // the session has remained
	b.shows(".state", "Running")
	b.click(".runbar form button")
	b.shows(".state", "Cancelled")

	// A deleted key ends its session.
	containers, err := s.client().Containers.List(t.Context(), openai.ContainerListParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers.Data { // the cleanup has no key for them
		if err := s.client().Containers.Delete(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	list, errs, err := s.berth("key", "ls", "--state", s.state, "--no-trunc")
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); strings.Contains(line, "proj_a") {
			if _, errs, err := s.berth("key", "rm", "--state", s.state, fields[0]); err != nil {
				t.Fatalf("%v: %s", err, errs)
			}
		}
	}
	b.open(s.url + "/console/")
	b.shows("h1", "Sign in")
	s.key = other // for the cleanup
}

// TestConsoleRequests sends the console what no browser sends.
func TestConsoleRequests(t *testing.T) {
	s := newServerWith(t, "preview: {domain: localhost}\n")
	for _, path := range []string{"", "sign-in", "responses", "responses/resp_unknown", "containers/cntr_unknown",
		"assets/console.js", "unknown"} {
		resp, err := http.Get(s.url + "/console/" + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := resp.Header
		if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
			!strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") ||
			h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("/console/%s: got the headers %v", path, h)
		}
		if unknown := strings.Contains(path, "unknown"); unknown != (resp.StatusCode == http.StatusNotFound) {
			t.Errorf("/console/%s: got %s", path, resp.Status)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"without a token":   func(*http.Request) {},
		"of another site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"of another origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"with another's token": func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader("form=" + strings.Repeat("0", 64)))
		},
		"for another name":        func(r *http.Request) { r.Host = "rebound.example" },
		"for a port's host":       func(r *http.Request) { r.Host = "8000-cntr1.localhost" },
		"that a proxy has passed": func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/console/responses/resp_x/cancel",
			strings.NewReader("form="))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = -1
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		change(r)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		want, said := http.StatusForbidden, ""
		if name == "for a port's host" { // E2B's door answers for an unknown sandbox
			want, said = http.StatusBadGateway, "The sandbox was not found"
		}
		if resp.StatusCode != want || !strings.Contains(string(body), said) {
			t.Errorf("a form %s: got %s %s", name, resp.Status, body)
		}
	}
	for _, change := range []func(*http.Request){ // only this machine needs no key
		func(r *http.Request) { r.Host = "rebound.example" },
		func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") },
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/console/", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if strings.Contains(string(text), "<h1>Home") {
			t.Errorf("%s %v: got the list of containers", r.Host, r.Header)
		}
	}
}

// TestConsoleOff serves no console.
func TestConsoleOff(t *testing.T) {
	s := newServerWith(t, "console: false\n")
	resp, err := http.Get(s.url + "/console/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("got %s", resp.Status)
	}
}
