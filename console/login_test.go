package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/people"
)

// fakeLogins knows the device BCDF-GHJK, and keeps what it was asked.
type fakeLogins struct{ asked []string }

func (f *fakeLogins) Authorize(_ context.Context, token, redirect, _ string) (string, error) {
	f.asked = append(f.asked, token+" "+redirect)
	return "the-code", nil
}

func (f *fakeLogins) FindDevice(_ context.Context, _, code string) (*people.Device, error) {
	if code != "BCDF-GHJK" {
		return nil, people.ErrUserCode
	}
	return &people.Device{UserCode: code, Address: "192.0.2.1", Created: time.Now()}, nil
}

func (f *fakeLogins) AnswerDevice(_ context.Context, token, code string, approve bool) error {
	if code != "BCDF-GHJK" {
		return people.ErrGuesses
	}
	f.asked = append(f.asked, token+" "+code)
	if approve {
		f.asked = append(f.asked, "approved")
	}
	return nil
}

// Only a form that the person has seen lets a program act for the person, and its page has no text of the program.
func TestLoginPages(t *testing.T) {
	logins := &fakeLogins{}
	c := New(http.HandlerFunc(keyAPI), slog.New(slog.DiscardHandler), WithSignIn(&fakeSignIn{origin: "http://berth.test"}),
		WithLogins(logins))
	session := c.sessions.start(accounts{All: []account{{Key: "sk-a-key"}, {Key: "sk-red", Person: "ada@example.com",
		Project: "red"}, {Key: "sk-blue", Person: "ada@example.com", Project: "blue"}}}, time.Now())
	cookie := "berth_console=" + session
	query := url.Values{"client_id": {"<b>Pay now</b>"}, "redirect_uri": {"http://127.0.0.1:7777/callback"},
		"code_challenge": {strings.Repeat("a", 43)}, "state": {strings.Repeat("s", 26)}, "scope": {"Pay now"}}
	authorize := "http://berth.test/console/authorize?" + query.Encode()

	page := ask(c, authorize, nil, cookie)
	form := page.Body.String()
	for _, not := range []string{"Pay now", "sk-", "a-key"} {
		if strings.Contains(form, not) {
			t.Errorf("the page has %q", not)
		}
	}
	if page.Code != http.StatusOK || len(logins.asked) != 0 || !strings.Contains(form, `<option value="2">ada@example.com · blue`) ||
		!strings.Contains(page.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("got %d %s", page.Code, form)
	}
	if w := ask(c, authorize, nil); w.Code != http.StatusSeeOther || !strings.Contains(w.Header().Get("Location"),
		"/console/sign-in/start?next=%2Fconsole%2Fauthorize%3F") {
		t.Errorf("without a session: got %d %v", w.Code, w.Header())
	}
	byKey := "berth_console=" + c.sessions.start(keyOf("sk-mine"), time.Now())
	if w := ask(c, authorize, nil, byKey); w.Code != http.StatusSeeOther {
		t.Errorf("with a key: got %d", w.Code)
	}
	for name, value := range map[string]string{"redirect_uri": "https://evil.example/callback", "code_challenge": "plain",
		"state": "short"} {
		changed := url.Values{}
		for k, v := range query {
			changed[k] = v
		}
		changed.Set(name, value)
		if w := ask(c, "http://berth.test/console/authorize?"+changed.Encode(), nil, cookie); w.Code != http.StatusBadRequest ||
			strings.Contains(w.Body.String(), "evil") {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/console/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie)
	v, err := c.visit(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	fields := func(more ...string) url.Values {
		f := url.Values{"form": {v.formToken().token}, "answer": {"allow"}, "as": {"2"}}
		for k, v := range query {
			f[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			f.Set(more[i], more[i+1])
		}
		return f
	}
	const post = "http://berth.test/console/authorize"
	for name, f := range map[string]url.Values{"another site's form": fields("form", "x"), "the key": fields("as", "0"),
		"no project": fields("as", "7"), "another redirect": fields("redirect_uri", "https://evil.example/callback")} {
		if w := ask(c, post, f, cookie); w.Code < 400 || len(logins.asked) != 0 {
			t.Errorf("%s: got %d, %v", name, w.Code, logins.asked)
		}
	}
	if w := ask(c, post, fields(), byKey); w.Code < 400 || len(logins.asked) != 0 {
		t.Errorf("with a key: got %d, %v", w.Code, logins.asked)
	}
	if w := ask(c, post, fields("answer", "deny"), cookie); len(logins.asked) != 0 || !strings.Contains(w.Body.String(),
		"error=access_denied") || strings.Contains(w.Body.String(), "the-code") {
		t.Errorf("refused: got %s", w.Body)
	}
	if w := ask(c, post, fields(), cookie); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "code=the-code") ||
		len(logins.asked) != 1 || logins.asked[0] != "sk-blue http://127.0.0.1:7777/callback" {
		t.Errorf("allowed: got %s, %v", w.Body, logins.asked)
	}
	testDevicePages(t, c, logins, cookie, fields)
}

// testDevicePages walks the pages of a device.
func testDevicePages(t *testing.T, c *Console, logins *fakeLogins, cookie string, fields func(...string) url.Values) {
	logins.asked = nil
	const device = "http://berth.test/console/device"
	if w := ask(c, device+"?user_code=BCDF-GHJK&code=BCDF-GHJK", nil, cookie); strings.Contains(w.Body.String(), "BCDF") {
		t.Errorf("a link enters the code: %s", w.Body)
	}
	if w := ask(c, device, fields("code", "BCDF-GHJK", "answer", ""), cookie); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), "192.0.2.1") || !strings.Contains(w.Body.String(), "BCDF-GHJK") || len(logins.asked) != 0 {
		t.Errorf("the first step: got %d %s, %v", w.Code, w.Body, logins.asked)
	}
	if w := ask(c, device, fields("code", "wrong", "answer", ""), cookie); w.Code != http.StatusNotFound {
		t.Errorf("a wrong code: got %d", w.Code)
	}
	if w := ask(c, device, fields("code", "wrong"), cookie); w.Code != http.StatusTooManyRequests {
		t.Errorf("too many codes: got %d", w.Code)
	}
	if w := ask(c, device, fields("code", "BCDF-GHJK", "form", "x"), cookie); w.Code < 400 || len(logins.asked) != 0 {
		t.Errorf("another site's form: got %d, %v", w.Code, logins.asked)
	}
	if w := ask(c, device, fields("code", "BCDF-GHJK", "answer", "deny"), cookie); !strings.Contains(w.Body.String(),
		"was refused") || len(logins.asked) != 1 {
		t.Errorf("refused: got %s, %v", w.Body, logins.asked)
	}
	if w := ask(c, device, fields("code", "BCDF-GHJK"), cookie); !strings.Contains(w.Body.String(), "signed in as you") ||
		len(logins.asked) != 3 {
		t.Errorf("allowed: got %s, %v", w.Body, logins.asked)
	}
}
