// Package dextest starts Dex, a provider of OpenID Connect, for tests.
package dextest

import (
	"bufio"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The client that Dex knows, and the password of all persons of e2e/dex/main.go.
const (
	ClientID     = "berth"
	ClientSecret = "the-secret-of-the-client"
	Password     = "password"
)

// Start starts Dex, which ends with the test, and returns its issuer. It skips the test if scripts/setup test has not
// built it.
func Start(tb testing.TB, redirect string) (issuer string) {
	tb.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	bin := filepath.Join(cache, "berth-test", "bin")
	if _, err := os.Stat(filepath.Join(bin, "dex")); err != nil {
		tb.Skip("no dex: run scripts/setup test")
	}
	cmd := exec.Command(filepath.Join(bin, "dex"), "-redirect", redirect, "-web", filepath.Join(bin, "dex-web"))
	cmd.Stderr = tb.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("dex did not start: %v", err)
	}
	return strings.TrimSpace(line)
}

// Browser returns a client with cookies.
func Browser(tb testing.TB) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

var action = regexp.MustCompile(`<form[^>]* action="([^"]*)"`)

// SignIn follows a link to sign in, fills in Dex's form, and returns the page after it.
func SignIn(tb testing.TB, browser *http.Client, link, person string) (status int, page string) {
	tb.Helper()
	resp, err := browser.Get(link)
	if err != nil {
		tb.Fatal(err)
	}
	form := action.FindStringSubmatch(read(tb, resp))
	if form == nil || !strings.HasPrefix(resp.Request.URL.Path, "/dex/") {
		tb.Fatalf("%s is not Dex's form", resp.Request.URL)
	}
	to, err := resp.Request.URL.Parse(strings.ReplaceAll(form[1], "&amp;", "&"))
	if err != nil {
		tb.Fatal(err)
	}
	resp, err = browser.PostForm(to.String(), url.Values{"login": {person}, "password": {Password}})
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, read(tb, resp)
}

func read(tb testing.TB, resp *http.Response) string {
	tb.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw)
}
