package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/model/modeltest"
)

// asking returns a response in the background whose commands wait for approval.
func (s *server) asking(input string) *responses.Response {
	s.t.Helper()
	task := shellTask(input)
	task.Background = openai.Bool(true)
	r, err := s.client().Responses.New(s.t.Context(), task, option.WithJSONSet("berth",
		map[string]any{"require_approval": "always"}))
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// TestConsoleApproval approves a command in a browser, and denies one.
func TestConsoleApproval(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1000)
	const hostile = `echo '<img src=x onerror="window.pwned=1">' | tee made`
	asks := s.asking(fence(hostile))
	b.open(s.url + "/console/responses/" + asks.ID)
	b.shows("#next .approval", hostile)
	checkHarmless(b, "an approval", "main script, main img, main iframe, main svg:not(.chart svg, .icon, .meter svg, .plot svg), main style")
	b.click(`#next button[value="approve"]`)
	b.shows(".shell_call_output pre", "<img src=x")
	b.shows(".turn:has(+ #next) .state", "Completed")

	approved := evaluate[string](b, "location.pathname")

	// The next response asks again, because it has the same settings.
	b.until(`document.querySelector("#text") !== null`)
	b.run(chromedp.SendKeys(chromedp.CSS("#text"), fence("touch denied")))
	b.click("#text ~ button")
	b.shows("#next .approval", "touch denied")
	b.click("#next .approval summary")
	b.run(chromedp.SendKeys(chromedp.CSS(`#next input[name="reason"]`), "Not on my machine"))
	b.click(`#next button[value="deny"]`)
	b.until(`document.querySelectorAll(".turn").length === 4`)
	b.shows(".turn:has(+ #next) .state", "Completed")
	b.shows(".turn:has(+ #next) .item", "Not on my machine")
	if n := evaluate[int](b, `document.querySelectorAll(".shell_call").length`); n != 1 {
		t.Errorf("the chain has %d calls, want the approved one alone", n)
	}

	// The same answer again leads to the same response; another one is refused.
	b.open(s.url + "/console/responses/" + asks.ID)
	b.click(`#next button[value="approve"]`)
	b.until(fmt.Sprintf("location.pathname === %q", approved))
	b.open(s.url + "/console/responses/" + asks.ID)
	b.click("#next .approval summary")
	b.click(`#next button[value="deny"]`)
	b.shows("h1", "Error")
	b.checkQuiet()
}

// TestConsoleNew starts a response in a browser, with a file, sees its output before it ends,
// continues it and forks it.
func TestConsoleNew(t *testing.T) {
	s := newServer(t)
	b := newBrowser(t, 1000)
	dir := t.TempDir()
	file := filepath.Join(dir, "data.csv")
	if err := os.WriteFile(file, []byte("a,b\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.open(s.url + "/console/new")
	b.click("form.ask button")
	b.shows("h1", "New run") // the task is required
	b.run(chromedp.SendKeys(chromedp.CSS("#text"),
		fence("cat /mnt/data/*.csv; until [ -e go ]; do sleep 0.05; done; echo went")),
		chromedp.SetUploadFiles(chromedp.CSS("#file"), []string{file}))
	b.click("form.ask button")
	b.shows(".shell_call_output pre", "1,2")
	b.shows(".state", "Running")
	// While it runs, the bar leads to its container and counts its steps and time.
	b.until(`document.querySelector('#bar a[href^="/console/containers/"]') !== null`)
	b.shows("#bar", "step 1: cat /mnt/data")
	b.until(`parseInt(document.querySelector("#bar [data-since]").textContent) >= 1`)
	container := evaluate[string](b, `document.querySelector('#bar a[href^="/console/containers/"]').textContent`)
	if out, errs, err := s.berth("exec", container, "--", "touch", "go"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	b.shows(".shell_call_output pre", "went")
	first := evaluate[string](b, "location.pathname")

	b.until(`document.querySelector("#text") !== null`)
	for i, word := range []string{"second", "third"} { // the third forks from the first
		b.run(chromedp.SendKeys(chromedp.CSS("#text"), fence("echo "+word+" >> words; cat words")))
		b.click("#text ~ button")
		b.until(`document.querySelectorAll(".turn").length === 2`)
		b.shows(".turn:has(+ #next) .shell_call_output pre", word)
		b.shows(".turn:has(+ #next) .state", "Completed")
		if i == 0 {
			b.click(`.turn > p > a[href="` + first + `"]`)
			b.until(`document.querySelectorAll(".turn").length === 1 && document.querySelector("#text") !== null`)
		}
	}

	// The request as code does what the form does.
	b.open(s.url + "/console/new")
	b.run(chromedp.SendKeys(chromedp.CSS("#text"), "It's \"code\" $HOME `id`\n"+fence("echo 'from code'")),
		chromedp.SendKeys(chromedp.CSS("#hosts"), "example.com, *.example.org"))
	b.click(`input[name="approve"]`)
	b.click(`button[name="show"]`)
	b.shows("details[name=code]", "JavaScript")
	if text := evaluate[string](b, `document.querySelector("#text").value`); !strings.Contains(text, "from code") {
		t.Errorf("the form lost its text: %q", text)
	}
	code := func(name string) string {
		return evaluate[string](b, fmt.Sprintf(`document.querySelector('pre[aria-label="%s"]').textContent`, name))
	}
	cmd := exec.Command("sh", "-c", code("curl"))
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+s.url+"/v1", "OPENAI_API_KEY=none")
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "mcp_approval_request") ||
		!strings.Contains(code("curl"), `"*.example.org"`) {
		t.Errorf("curl: %v: %s", err, out)
	}
	check := exec.Command("python3", "-c", "import ast, sys; ast.parse(sys.stdin.read())")
	check.Stdin = strings.NewReader(code("Python"))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("the Python is invalid: %v: %s", err, out)
	}
	b.checkQuiet()

	// A refusal keeps what was entered.
	b.run(chromedp.SendKeys(chromedp.CSS("#hosts"), " not/a/host"))
	b.click("form.ask button")
	b.shows("[role=alert]", "not/a/host")
	if text := evaluate[string](b, `document.querySelector("#text").value`); !strings.Contains(text, "from code") {
		t.Errorf("the form lost its text: %q", text)
	}
}

// TestConsoleOtherModel drops a file on the playground, sees what a call changed, and continues with another
// model in the same container.
func TestConsoleOtherModel(t *testing.T) {
	upstream := modeltest.NewChatServer(t, recite)
	s := newServerWith(t,
		fmt.Sprintf(
			"containers: {pool: 0}\nupstreams:\n  other: {provider: chat, base_url: %q, api_key: none}\nmodels:\n  - {match: other-model, upstreams: [{name: other}]}\n",
			upstream.URL))
	b := newBrowser(t, 1000)
	b.open(s.url + "/console/new")
	b.run(chromedp.SendKeys(chromedp.CSS("#text"), fence("sort *.txt > sorted.csv")),
		chromedp.SetValue(chromedp.CSS("#next-model"), "scripted"))
	evaluate[bool](b, `(() => { const files = new DataTransfer(); files.items.add(new File(["b\na\n"], "boats.txt"));
		document.querySelector("form.ask").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true})); return true; })()`)
	b.shows("h1", "New run") // it is not sent yet
	b.click("form.ask button")
	b.shows(".shell_call_output summary", "1 changed file")
	b.click(".shell_call_output summary")
	b.shows(".shell_call_output details li", "created /mnt/data/sorted.csv 4 B")
	b.shows(".turn:has(+ #next) .state", "Completed")

	b.until(`document.querySelector("#next-model") !== null`)
	b.run(chromedp.SetValue(chromedp.CSS("#next-model"), "other-model"), chromedp.SendKeys(chromedp.CSS("#text"),
		"```shell\n"+`{"commands":["cat sorted.csv"]}`+"\n```"))
	b.click("#text ~ button")
	b.until(`document.querySelectorAll(".turn").length === 2`)
	b.shows(".turn:has(+ #next) .shell_call_output pre", "a\nb")
	b.shows(".turn:has(+ #next) .head code", "other-model")
	b.shows(".turn:has(+ #next) .state", "Completed")
	b.checkQuiet()
}
