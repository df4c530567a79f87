package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/dextest"
	"github.com/berth-run/berth/people/oidc"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/state"
)

const signInConfig = `driver: unsafe-local
containers: {pool: 0}
sign_in:
  issuer: %s
  name: Dex
  client_id: berth
  client_secret_env: TEST_OIDC_SECRET
  url: %s
  scopes: [openid, profile, email, groups]
  projects:
  - {group: engineers, project: proj_red}
  - {group: operators, role: admin}
`

// signInServer returns a server that trusts Dex, its address and its state directory.
func signInServer(t *testing.T, issuer func(redirect string) string) (url, dir string) {
	t.Helper()
	var s *Server
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	t.Setenv("TEST_OIDC_SECRET", dextest.ClientSecret)
	dir = t.TempDir()
	s, _ = testServer(t, dir, fmt.Sprintf(signInConfig, issuer(web.URL+oidc.CallbackPath), web.URL))
	return web.URL, dir
}

func fetch(t *testing.T, c *http.Client, url string) (status int, at, page string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Request.URL.Path, string(raw)
}

var formToken = regexp.MustCompile(`name="form" value="([^"]*)"`)

// People sign in with Dex: their groups decide what they see, and their sessions end at a sign-out, when the operator
// ends them, and when the person is deactivated.
func TestSignIn(t *testing.T) {
	at, dir := signInServer(t, func(redirect string) string { return dextest.Start(t, redirect) })
	anonymous := dextest.Browser(t)
	if _, path, page := fetch(t, anonymous, at+"/console/"); path != "/console/sign-in" || !strings.Contains(page,
		"Sign in with Dex") {
		t.Fatalf("without a session: got %s %s", path, page)
	}
	start := at + "/console/sign-in/start?next=/console/usage"

	bob := dextest.Browser(t)
	if status, page := dextest.SignIn(t, bob, start, "bob@example.com"); status != http.StatusOK || !strings.Contains(page,
		`content="0;url=/console/usage"`) {
		t.Fatalf("bob: got %d %s", status, page)
	}
	signedIn := func(c *http.Client) bool {
		status, path, _ := fetch(t, c, at+"/console/usage")
		return status == http.StatusOK && path == "/console/usage"
	}
	if !signedIn(bob) {
		t.Error("bob is not signed in")
	}
	if status, _, _ := fetch(t, bob, at+"/console/projects"); status != http.StatusForbidden {
		t.Errorf("bob, who is no administrator: got status %d", status)
	}
	ada := dextest.Browser(t)
	dextest.SignIn(t, ada, start, "ada@example.com")
	_, _, page := fetch(t, ada, at+"/console/usage")
	if !strings.Contains(page, "ada@example.com · proj_red") || !strings.Contains(page, "ada@example.com · Operator") {
		t.Errorf("ada: got %s", page)
	}
	if status, page := dextest.SignIn(t, dextest.Browser(t), start, "carol@example.com"); status != http.StatusForbidden ||
		!strings.Contains(page, "none of your groups has access") {
		t.Errorf("carol: got %d %s", status, page)
	}

	form := formToken.FindStringSubmatch(page)
	if form == nil {
		t.Fatal("no form")
	}
	resp, err := ada.PostForm(at+"/console/sign-out", url.Values{"form": {form[1]}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if signedIn(ada) || !signedIn(bob) {
		t.Error("the sign-out of ada has not ended her session, or has ended bob's")
	}

	open, err := state.OpenExisting(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	person, err := open.People.Find(t.Context(), "Bob@example.com")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := open.People.EndSessions(t.Context(), person.ID); err != nil || n != 1 || signedIn(bob) {
		t.Errorf("the operator ended %d sessions, %v; bob is signed in: %v", n, err, signedIn(bob))
	}
	dextest.SignIn(t, bob, start, "bob@example.com")
	if !signedIn(bob) {
		t.Error("bob cannot sign in again")
	}
	if err := open.People.Deactivate(t.Context(), person.ID); err != nil || signedIn(bob) {
		t.Errorf("bob was deactivated: %v", err)
	}
	if status, page := dextest.SignIn(t, bob, start, "bob@example.com"); status != http.StatusForbidden ||
		!strings.Contains(page, "deactivated") {
		t.Errorf("bob, who was deactivated: got %d %s", status, page)
	}
	if err := open.People.Activate(t.Context(), person.ID); err != nil {
		t.Fatal(err)
	}
	dextest.SignIn(t, bob, start, "bob@example.com")
	if !signedIn(bob) {
		t.Error("bob cannot sign in after he was activated")
	}
}

// A running request of a person ends within seconds after the person is deactivated.
func TestSignInStream(t *testing.T) {
	at, dir := signInServer(t, func(redirect string) string { return dextest.Start(t, redirect) })
	bob := dextest.Browser(t)
	dextest.SignIn(t, bob, at+"/console/sign-in/start", "bob@example.com")
	resp, err := bob.Get(at + "/console/responses/events")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", resp, err)
	}
	defer resp.Body.Close()
	open, err := state.OpenExisting(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	person, err := open.People.Find(t.Context(), "bob@example.com")
	if err != nil {
		t.Fatal(err)
	}
	if err := open.People.Deactivate(t.Context(), person.ID); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the stream continues")
	}
}

// While the provider is away, the server serves keys and tells people so.
func TestSignInAway(t *testing.T) {
	at, dir := signInServer(t, func(string) string { return "http://127.0.0.1:1" })
	open, err := state.OpenExisting(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	_, secret, err := open.Projects.CreateKey(t.Context(), "proj_red", project.KeyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodGet, at+"/v1/containers", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: got %v, %v", resp, err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("with a key: got %v, %v", resp, err)
	}
	status, _, page := fetch(t, dextest.Browser(t), at+"/console/sign-in/start")
	if status != http.StatusServiceUnavailable || !strings.Contains(page, "cannot be reached now") {
		t.Errorf("got %d %s", status, page)
	}
}
