package main

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/dextest"
	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/server/embedded"
)

const loginConfig = `driver: unsafe-local
server: {listen: "%[1]s"}
containers: {pool: 0}
sign_in:
  issuer: %[2]s
  client_id: berth
  client_secret_env: TEST_OIDC_SECRET
  url: http://%[1]s
  scopes: [openid, profile, email, groups]
  projects:
  - {group: engineers, project: proj_red, role: runner}
  - {group: operators, role: admin}
`

// startBerth starts the command line and returns its standard error.
func startBerth(t *testing.T, args ...string) (cmd *exec.Cmd, messages *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command("berth", args...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

// awaitLine returns the line of messages that matches a pattern.
func awaitLine(t *testing.T, messages *bufio.Scanner, pattern string) []string {
	t.Helper()
	like, seen := regexp.MustCompile(pattern), ""
	for messages.Scan() {
		if found := like.FindStringSubmatch(messages.Text()); found != nil {
			return found
		}
		seen += messages.Text() + "\n"
	}
	t.Fatalf("no line is like %s:\n%s", pattern, seen)
	return nil
}

// berthPrints runs the command line and returns what it prints.
func berthPrints(t *testing.T, args ...string) (string, error) {
	t.Helper()
	raw, err := exec.CommandContext(t.Context(), "berth", args...).CombinedOutput()
	return string(raw), err
}

// loginServer starts Dex and a server that trusts it, and returns the server's address.
func loginServer(t *testing.T) (at string) {
	t.Helper()
	if _, err := embedded.Extract(t.TempDir()); err != nil {
		t.Skipf("skipped: %v", err)
	}
	addr := freeport.Addr(t)
	issuer := dextest.Start(t, "http://"+addr+"/console/sign-in/callback")
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("BERTH_STATE", filepath.Join(home, "state"))
	t.Setenv("BERTH_URL", "")
	t.Setenv("BERTH_API_KEY", "")
	t.Setenv("DISPLAY", "") // no browser of the machine opens
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("BERTH_BUILD_TEMPLATE", "never")
	t.Setenv("TEST_OIDC_SECRET", dextest.ClientSecret)
	file := filepath.Join(home, "berth.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, loginConfig, addr, issuer), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroyAll(t, filepath.Join(home, "state")) })
	_, log := startBerth(t, "serve", "--config", file)
	awaitLine(t, log, `msg=serving `)
	go func() { // a full pipe would stop the server
		for log.Scan() {
		}
	}()
	return "http://" + addr
}

// A browser is a client with cookies that walks the console.
type browser struct {
	*http.Client
	t  *testing.T
	at string // of the server
}

func (b browser) read(resp *http.Response, err error) (status int, page string) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

func (b browser) get(link string) (int, string) {
	b.t.Helper()
	return b.read(b.Get(link))
}

var (
	hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
	refreshTo   = regexp.MustCompile(`http-equiv="refresh" content="0;url=([^"]*)"`)
)

// submit sends a form as a person does: its hidden fields and those of more.
func (b browser) submit(page, path string, more url.Values) (int, string) {
	b.t.Helper()
	for _, f := range hiddenField.FindAllStringSubmatch(page, -1) {
		more.Set(f[1], html.UnescapeString(f[2]))
	}
	return b.read(b.PostForm(b.at+path, more))
}

// next returns where a page sends the browser.
func (b browser) next(page string) string {
	b.t.Helper()
	found := refreshTo.FindStringSubmatch(page)
	if found == nil {
		b.t.Fatalf("the page sends nowhere: %s", page)
	}
	return html.UnescapeString(found[1])
}

// signInAt signs a person in with Dex and returns the page after it.
func (b browser) signInAt(link, person string) string {
	b.t.Helper()
	status, page := dextest.SignIn(b.t, b.Client, link, person)
	if status != http.StatusOK {
		b.t.Fatalf("%s cannot sign in: %d %s", person, status, page)
	}
	_, page = b.get(b.at + b.next(page))
	return page
}

// The command line signs a person in with Dex, by a browser on this computer and on another. The session is in a file
// that only its owner reads, has the person's roles, and ends with logout and with the deactivation of the person.
func TestLogin(t *testing.T) {
	at := loginServer(t)
	b := browser{dextest.Browser(t), t, at}
	cmd, messages := startBerth(t, "login", at, "--browser", "--name", "work")
	link := awaitLine(t, messages, `^http://\S+$`)[0]
	page := b.signInAt(link, "bob@example.com")
	for _, want := range []string{"As <b>bob@example.com · proj_red</b>", "Have you started it yourself"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page to confirm lacks %q: %s", want, page)
		}
	}
	query, err := url.ParseQuery(link[strings.Index(link, "?")+1:])
	if err != nil {
		t.Fatal(err)
	}
	listener := query.Get("redirect_uri")
	for name, change := range map[string]func(*http.Request){
		"another's code without the state": func(r *http.Request) { r.URL.RawQuery = "code=injected" },
		"another state":                    func(r *http.Request) { r.URL.RawQuery = "code=injected&state=" + strings.Repeat("x", 26) },
		"two states": func(r *http.Request) {
			r.URL.RawQuery = "code=injected&state=x&state=" + query.Get("state")
		},
		"another name": func(r *http.Request) {
			r.Host = "evil.example:7777"
			r.URL.RawQuery = "code=injected&state=" + query.Get("state")
		},
		"a form": func(r *http.Request) {
			r.Method, r.URL.RawQuery = http.MethodPost, "code=injected&state="+query.Get("state")
		},
		"another path": func(r *http.Request) {
			r.URL.Path, r.URL.RawQuery = "/", "code=injected&state="+query.Get("state")
		},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, listener, nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		if status, _ := b.read(http.DefaultClient.Do(r)); status != http.StatusBadRequest {
			t.Errorf("%s: the listener answers %d", name, status)
		}
	}
	status, page := b.submit(page, "/console/authorize", url.Values{"answer": {"allow"}})
	back := b.next(page)
	if status != http.StatusOK || !strings.HasPrefix(back, listener+"?code=") {
		t.Fatalf("got %d %s", status, page)
	}
	if status, text := b.get(back); status != http.StatusOK || !strings.Contains(text, "close this window") {
		t.Errorf("the listener answers %d %s", status, text)
	}
	awaitLine(t, messages, `Signed in as bob@example\.com until`)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}

	file, err := contextsFile()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of contexts: %v, %v", info.Mode(), err)
	}
	who, err := berthPrints(t, "whoami")
	for _, want := range []string{"bob@example.com", "proj_red", "read run attach", "Until"} {
		if err != nil || !strings.Contains(who, want) {
			t.Errorf("whoami lacks %q: %s %v", want, who, err)
		}
	}
	if strings.Contains(who, "manage") {
		t.Errorf("a runner may manage: %s", who)
	}
	if out, err := berthPrints(t, "ps"); err != nil {
		t.Errorf("ps: %s %v", out, err)
	}

	if out, err := berthPrints(t, "user", "deactivate", "bob@example.com"); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	if out, err := berthPrints(t, "ps"); err == nil || !strings.Contains(out, "Your session has ended. Sign in again") {
		t.Errorf("after the deactivation: %s %v", out, err)
	}
	if out, err := berthPrints(t, "user", "activate", "bob@example.com"); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	testDeviceLogin(t, b)
}

// testDeviceLogin signs ada in on a computer without a browser, and out.
func testDeviceLogin(t *testing.T, b browser) {
	b.Client = dextest.Browser(t)
	cmd, messages := startBerth(t, "login", b.at, "--device", "--name", "work")
	found := awaitLine(t, messages, `^Visit (\S+) in a browser and enter the code (\S+)$`)
	page := b.signInAt(found[1], "ada@example.com")
	if _, page = b.submit(page, "/console/device", url.Values{"code": {found[2]}}); !strings.Contains(page, found[2]) ||
		!strings.Contains(page, "If somebody has sent you the code") || !strings.Contains(page, "127.0.0.1") {
		t.Fatalf("the page to confirm: %s", page)
	}
	as := regexp.MustCompile(`<option value="(\d)">ada@example.com · Operator</option>`).FindStringSubmatch(page)
	if as == nil {
		t.Fatalf("ada has no choice: %s", page)
	}
	if _, page = b.submit(page, "/console/device", url.Values{"as": {as[1]}, "answer": {"allow"}}); !strings.Contains(page,
		"signed in as you") {
		t.Fatalf("after the answer: %s", page)
	}
	awaitLine(t, messages, `Signed in as ada@example\.com until`)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if who, err := berthPrints(t, "whoami"); err != nil || !strings.Contains(who, "organization.manage") {
		t.Errorf("whoami: %s %v", who, err)
	}
	saved, err := readContexts()
	if err != nil || len(saved.Contexts) != 1 {
		t.Fatalf("got %+v, %v", saved, err)
	}
	token := saved.current().Key
	if out, err := berthPrints(t, "logout"); err != nil || strings.Contains(out, token) {
		t.Errorf("logout: %s %v", out, err)
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, b.at+"/v1/whoami", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if status, text := b.read(http.DefaultClient.Do(r)); status != http.StatusUnauthorized {
		t.Errorf("the session continues after logout: %d %s", status, text)
	}
	if saved, err = readContexts(); err != nil || saved.current().Key != "" || saved.current().URL != b.at {
		t.Errorf("after logout: got %+v, %v", saved, err)
	}
}
