package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// TestDocs runs the blocks of each document against a server of its own, as a reader would:
// the shell blocks of a page in one shell, then its Python blocks in one interpreter, then the
// others. It compares what they print with the output that the page shows.
func TestDocs(t *testing.T) {
	for page, all := range pages(t) {
		groups := map[string][]snippet{} // by language, each block before its output
		for i, s := range all {
			if s.output {
				groups[all[i-1].language] = append(groups[all[i-1].language], s)
			} else if s.skip == "" && slices.Contains([]string{"sh", "python", "js", "json"}, s.language) {
				groups[s.language] = append(groups[s.language], s)
			}
		}
		if len(groups) == 0 {
			continue
		}
		t.Run(page, func(t *testing.T) {
			r := newReader(t)
			r.shell(groups["sh"], nil)
			r.python(groups["python"])
			r.node(groups["js"])
			for _, s := range groups["json"] {
				r.json(s)
			}
		})
	}
}

// A reader follows a page: it has a server and a directory with the files that the
// documents use.
type reader struct {
	t    *testing.T
	s    *server
	dir  string
	mcp  string   // an MCP server
	set  []string // variables, beside those of env
	path string   // a directory with programs
}

func newReader(t *testing.T) *reader {
	used := newServices(t)
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	config := fmt.Sprintf(`containers: {network: {private: ["db.example.com:5432", "10.1.0.0/16:22"]}}
mcp: {private: ['%s']}
web_search: {backend: searxng, url: '%s', private: ['%s']}
models: [{match: "*", base_url: '%s/v1', api_key: none}]
image_generation: {model: gpt-image-1}
`, host(used.mcp.URL), used.search.URL, host(used.site.URL), newAnyModel(t).URL)
	r := &reader{t: t, s: newServerWith(t, config), dir: t.TempDir(), mcp: used.mcp.URL}
	for path, content := range map[string]string{
		"sales.csv":             "month,total\n2026-01,3\n2026-02,5\n",
		"manual.pdf":            pdf("Prime the pump with two strokes."),
		"src/main.py":           "print(6*7)\n",
		"tides/SKILL.md":        "---\nname: tides\ndescription: Computes tides.\n---\nRun scripts/tide.sh HARBOUR.\n",
		"tides/scripts/tide.sh": "echo noon\n",
		"backup/README":         "",
	} {
		path = filepath.Join(r.dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// newAnyModel starts an upstream with all models that the documents name. It recites; given a task
// without blocks and a shell, it writes chart.png. Its images are one pixel.
func newAnyModel(t *testing.T) *httptest.Server {
	double := modeltest.NewChatHandler(func(n int, got *modeltest.Request) modeltest.Turn {
		last := got.Messages[len(got.Messages)-1]
		if len(got.Tools) > 0 && got.Tools[0].Name == "shell" && last.Role == "user" && !fenced.MatchString(last.Text) {
			return modeltest.Reply(model.Call{ID: fmt.Sprintf("call_%024d", n), Name: "shell",
				Arguments: `{"commands":["echo 8 >chart.png"]}`},
				model.Finish{Reason: model.FinishStop,
					Usage: berth.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}})
		}
		return recite(n, got)
	})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/images/generations", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"created": 1,
			"data": []any{map[string]string{"b64_json": base64.StdEncoding.EncodeToString(
				[]byte("\x89PNG\r\n\x1a\n"))}}})
	})
	mux.Handle("/", double)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// pdf returns a document of one page with one line.
func pdf(text string) string {
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n")
	var at []int
	stream := "BT /F1 12 Tf 72 720 Td (" + text + ") Tj ET"
	for i, object := range []string{
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
		fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(stream), stream),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
	} {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, offset := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, xref)
	return b.String()
}

// prelude makes a shell what the documents presuppose. last prints the newest id of a kind, and
// makes an object of the kind if there is none; attach has a terminal, in which its user
// types exit; a request that fails ends the script.
const prelude = `set -eEuo pipefail
trap 'echo "$BLOCK: failed: $BASH_COMMAND" >&2' ERR
sudo() { env "$@"; }
curl() { command curl --fail-with-body --no-progress-meter "$@"; }
berth() {
	case $1 in
	attach) echo exit | script -qec "berth attach $2" /dev/null ;;
	doctor) env -u OPENAI_BASE_URL -u OPENAI_API_KEY berth "$@" ;; # those are of clients of the server under test
	*) command berth "$@" ;;
	esac
}
find_last() {
	local digits=16 # of full ids: the API takes no others
	case $1 in key_ | whe_) digits=8 ;; esac # only commands take these
	cat made out | grep -aoE "$1[0-9a-f]{$digits,}" | tail -n 1 || true
}
last() {
	if [ -z "$(find_last "$1")" ]; then
		case $1 in
		cntr_) command berth create ;;
		snap_) command berth snapshot create "$(last cntr_)" ;;
		resp_) command berth run --model scripted $'~~~\n' 2>&1 ;;
		*) echo "no command printed an id $1…" >&2 ;;
		esac >>made
	fi
	find_last "$1"
}
: >made
`

// mark begins the output of a block.
const mark = "\x1e"

// shell runs the shell blocks of a page in one shell, and calls during concurrently. all contains the
// shown outputs after their blocks.
func (r *reader) shell(all []snippet, during func()) {
	r.t.Helper()
	if len(all) == 0 {
		return
	}
	var script strings.Builder
	script.WriteString(strings.Replace(prelude, `~~~\n`, "```sh\\necho one >one.txt\\n```", 1))
	for _, s := range all {
		if s.language == "sh" {
			fmt.Fprintf(&script, "BLOCK=%s:%d\nprintf '%s%%s\\n' $BLOCK\n%s\n", s.page, s.line, mark,
				r.here(fillIn(s.text)))
		}
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	out := filepath.Join(r.dir, "out")
	file, err := os.OpenFile(out, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	bin := r.t.TempDir()
	if err := os.Symlink(binary(r.t), filepath.Join(bin, "berth")); err != nil {
		r.t.Fatal(err)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, file, file
	cmd.Env = append(append(r.env(), "PATH="+bin+":"+r.path+":"+os.Getenv("PATH")), r.set...)
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	if during != nil {
		during()
	}
	err = cmd.Wait()
	printed := read(r.t, out)
	if err != nil {
		r.t.Fatalf("%v; the blocks printed:\n%s", err, printed)
	}
	r.compare(all, printed)
}

// compare compares what blocks printed, each after its mark, with what the page shows.
func (r *reader) compare(all []snippet, printed string) {
	r.t.Helper()
	for i, s := range all {
		if !s.output {
			continue
		}
		_, got, _ := strings.Cut(printed, fmt.Sprintf("%s%s:%d\n", mark, s.page, all[i-1].line))
		got, _, _ = strings.Cut(got, mark)
		if !pattern(s.text).MatchString(strings.Join(strings.Fields(got), " ")) {
			r.t.Errorf("%s:%d shows output that its commands do not have. They printed:\n%s", s.page, s.line, got)
		}
	}
}

// here replaces the addresses and directories of the documents by those of the test.
func (r *reader) here(text string) string {
	return strings.NewReplacer("http://127.0.0.1:8080", r.s.url, "https://mcp.example.com/mcp", r.mcp,
		"/var/lib/berth", r.s.state, "/backup/", r.dir+"/backup/").Replace(text)
}

func (r *reader) env() []string {
	return append(os.Environ(), "BERTH_URL="+r.s.url, "BERTH_STATE="+r.s.state, "OPENAI_BASE_URL="+r.s.url+"/v1",
		"OPENAI_API_KEY=none",
		"HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir)
}

// run runs a program of blocks, and compares what it prints with what the page shows.
func (r *reader) run(all []snippet, name string, args ...string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = r.dir, r.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("%s:%d: %v\n%s", all[0].page, all[0].line, err, out)
		return
	}
	r.compare(all, string(out))
}

// program joins the blocks of a language, each after a statement that prints its mark, and
// writes them to a file.
func (r *reader) program(all []snippet, name, begin, print string) (path string) {
	r.t.Helper()
	for _, s := range all {
		if !s.output {
			begin += fmt.Sprintf(print, fmt.Sprintf("\\x1e%s:%d", s.page, s.line)) + "\n" + s.text
		}
	}
	path = filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(r.here(begin)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// python runs the Python blocks of a page in one interpreter, with the names that pages share.
func (r *reader) python(all []snippet) {
	r.t.Helper()
	if len(all) == 0 {
		return
	}
	const begin = "from openai import OpenAI\nclient = OpenAI()\ntoken = 'none'\nsales = client.files.create(file=open('sales.csv', 'rb'), purpose='user_data')\n"
	r.run(all, pythonClient{env: "sdk"}.python(r.t), "-W", "ignore", r.program(all, "page.py", begin, "print('%s')"))
}

// node runs the JavaScript of a page as one module.
func (r *reader) node(all []snippet) {
	r.t.Helper()
	if len(all) == 0 {
		return
	}
	skipWithout(r.t, "node/node_modules/.berth-lock")
	modules, err := filepath.Abs("node/node_modules")
	if err == nil {
		err = os.Symlink(modules, filepath.Join(r.dir, "node_modules"))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.run(all, "node", r.program(all, "page.mjs", "", "console.log('%s');"))
}

var elided = regexp.MustCompile(`([\[{])…([\]}])`)

// json checks that a block is JSON. A request is sent, and so is the network policy of a container.
func (r *reader) json(s snippet) {
	r.t.Helper()
	text := elided.ReplaceAllString(s.text, "$1$2")
	if strings.HasPrefix(text, `"`) {
		text = "{" + text + "}" // a field
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		r.t.Errorf("%s:%d: %v", s.page, s.line, err)
		return
	}
	switch {
	case fields["model"] != nil && fields["input"] != nil:
		r.post(s, "/v1/responses", fields)
	case fields["allowed_domains"] != nil && fields["type"] != nil:
		r.post(s, "/v1/containers", map[string]any{"name": "policy", "network_policy": fields})
	}
}

func (r *reader) post(s snippet, path string, body any) {
	r.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.Post(r.s.url+path, "application/json", bytes.NewReader(raw))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		r.t.Errorf("%s:%d: %s: %s", s.page, s.line, resp.Status, answer)
	}
}
