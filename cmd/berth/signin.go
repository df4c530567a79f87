package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// oauthClient is the client of the server's token endpoint. It has no secret.
const oauthClient = "berth-cli"

// An oauthSession is the answer of the token endpoint.
type oauthSession struct {
	AccessToken string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"` // seconds
	Person      string `json:"person"`
}

// An oauthError is an error of the token endpoint, by its code.
type oauthError struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

func (e *oauthError) Error() string {
	switch e.Code {
	case "access_denied":
		return "the sign-in was refused in the browser, or the person has no access any more"
	case "expired_token":
		return "the code has expired; run the command again"
	case "invalid_grant":
		return "the code is not valid or was used before; run the command again"
	}
	if e.Description != "" {
		return inLine(e.Description)
	}
	return "the server refused the sign-in: " + inLine(e.Code)
}

// signIn lets a person sign in, with the browser of this computer or of another.
func signIn(cmd *cobra.Command, c *client, browser bool) (*oauthSession, error) {
	if err := checkURL(c.base); err != nil {
		return nil, err
	}
	u, err := url.Parse(c.base)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" && !c.plain && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("refusing to sign in to %s unencrypted; use https, or --plain-http (BERTH_PLAIN_HTTP=1) if you trust the network",
			u.Host)
	}
	var s *oauthSession
	if browser {
		s, err = c.signInBrowser(cmd.Context(), cmd.ErrOrStderr())
	} else {
		s, err = c.signInDevice(cmd.Context(), cmd.ErrOrStderr())
	}
	if err == nil && s.AccessToken == "" {
		err = errors.New("the server has sent no session")
	}
	return s, err
}

// oauth sends a form to an endpoint of the server and decodes the answer into out.
func (c *client) oauth(ctx context.Context, path string, form url.Values, out any) error {
	form.Set("client_id", oauthClient)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(r)
	if err != nil {
		return c.unreachable(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return json.Unmarshal(raw, out)
	}
	refused := &oauthError{}
	if json.Unmarshal(raw, refused) != nil || refused.Code == "" {
		if resp.StatusCode == http.StatusNotFound {
			return fmt.Errorf("people do not sign in to %s (its configuration has no sign_in); use a key", c.base)
		}
		return fmt.Errorf("the server returned %s", resp.Status)
	}
	return refused
}

// revoke ends a session.
func (c *client) revoke(ctx context.Context, token string) error {
	return c.oauth(ctx, "/oauth/revoke", url.Values{"token": {token}}, &struct{}{})
}

// signInBrowser signs a person in with the browser of this computer: it returns to a listener on loopback with a code,
// which only this program can exchange, since only it has the verifier (RFC 8252, RFC 7636).
func (c *client) signInBrowser(ctx context.Context, out io.Writer) (*oauthSession, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	defer l.Close()
	verifier, state := rand.Text()+rand.Text(), rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	back := &callback{host: l.Addr().String(), state: state, answers: make(chan url.Values, 1)}
	server := &http.Server{Handler: back, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with l
	defer server.Close()
	redirect := "http://" + back.host + "/callback"
	link := c.base + "/console/authorize?" + url.Values{"response_type": {"code"}, "client_id": {oauthClient},
		"redirect_uri": {redirect}, "state": {state}, "code_challenge_method": {"S256"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}.Encode()
	if err := c.oauth(ctx, "/oauth/token", url.Values{}, nil); !isOAuth(err, "unsupported_grant_type") {
		return nil, err // before a browser opens a page that is not there
	}
	fmt.Fprintf(out, "Sign in with the browser. If it does not open, visit:\n%s\n", link)
	openBrowser(link)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case answer := <-back.answers:
		if code := answer.Get("error"); code != "" {
			return nil, &oauthError{Code: code}
		}
		s := &oauthSession{}
		err := c.oauth(ctx, "/oauth/token", url.Values{"grant_type": {"authorization_code"},
			"code": {answer.Get("code")}, "redirect_uri": {redirect}, "code_verifier": {verifier}}, s)
		return s, err
	}
}

// isOAuth reports whether an error has a code.
func isOAuth(err error, code string) bool {
	e, ok := errors.AsType[*oauthError](err)
	return ok && e.Code == code
}

// A callback serves the page to which the browser returns. Any page in the browser can send requests here, so only
// one with the state counts.
type callback struct {
	host, state string
	answers     chan url.Values
}

// ServeHTTP implements http.Handler.
func (b *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	query := r.URL.Query()
	if r.Method != http.MethodGet || r.URL.Path != "/callback" || r.Host != b.host || len(query["state"]) != 1 ||
		len(query["code"])+len(query["error"]) != 1 ||
		subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(b.state)) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "This is not the sign-in that berth login waits for.\n")
		return
	}
	select {
	case b.answers <- query:
	default: // it has one
	}
	_, _ = io.WriteString(w, "berth login has got the answer. You can close this window.\n")
}

// openBrowser opens a page, if this computer has a browser. The person can always copy the address.
func openBrowser(link string) {
	name, args := "xdg-open", []string{link}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "linux":
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return
		}
	}
	cmd := exec.Command(name, args...)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}

// signInDevice signs a person in with the browser of another computer (RFC 8628).
func (c *client) signInDevice(ctx context.Context, out io.Writer) (*oauthSession, error) {
	var device struct {
		DeviceCode      string `json:"device_code"`
		UserCode        string `json:"user_code"`
		VerificationURI string `json:"verification_uri"`
		Interval        int64  `json:"interval"` // seconds
		ExpiresIn       int64  `json:"expires_in"`
	}
	if err := c.oauth(ctx, "/oauth/device_authorization", url.Values{}, &device); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Visit %s in a browser and enter the code %s\n", inLine(device.VerificationURI),
		inLine(device.UserCode))
	wait := time.Duration(max(1, min(device.Interval, 60))) * time.Second
	until := time.Now().Add(time.Duration(device.ExpiresIn) * time.Second)
	for {
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		s := &oauthSession{}
		err := c.oauth(ctx, "/oauth/token", url.Values{"device_code": {device.DeviceCode},
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}}, s)
		_, told := errors.AsType[*oauthError](err)
		switch {
		case err == nil:
			return s, nil
		case isOAuth(err, "slow_down"):
			wait += 5 * time.Second
		case isOAuth(err, "authorization_pending"), !told && ctx.Err() == nil && time.Now().Before(until):
			// the person has not answered, or the network fails for a moment
		default:
			return nil, err
		}
	}
}
