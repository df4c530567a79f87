package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/people"
)

// A fakeSignIn accepts the cookie "flow" and returns to whatever it is told.
type fakeSignIn struct {
	origin, next string
	ended        []string
}

func (f *fakeSignIn) Name() string   { return `Dex <&"` }
func (f *fakeSignIn) Origin() string { return f.origin }

// callbackPath is where the answers of the provider arrive.
const callbackPath = "/console/sign-in/callback"

func (f *fakeSignIn) Callback() string { return callbackPath }

func (f *fakeSignIn) Start(_ context.Context, next string) (location, cookie string, err error) {
	return "https://login.example/authorize?next=" + url.QueryEscape(next), "flow", nil
}

func (f *fakeSignIn) Finish(_ context.Context, query url.Values, cookie string) (*people.Session, string, error) {
	if cookie != "flow" {
		return nil, "", &people.Refusal{Status: http.StatusBadRequest, Message: "not begun in this browser"}
	}
	return &people.Session{Person: &people.Person{ID: "user_1", Email: "ada@example.com"}, Expires: time.Now().Add(time.Hour),
			Tokens: []people.Token{{Secret: "sk-red", Project: "proj_red"}, {Secret: "sk-all", Project: berth.AdminProject}}},
		f.next, nil
}

func (f *fakeSignIn) SignOut(_ context.Context, token string) error {
	f.ended = append(f.ended, token)
	return nil
}

// A link cannot lead a sign-in to another site, neither by its path nor by its host.
func TestOpenRedirect(t *testing.T) {
	s := &fakeSignIn{origin: "https://berth.test"}
	c := New(http.HandlerFunc(keyAPI), slog.New(slog.DiscardHandler), WithSignIn(s))
	for _, next := range []string{"https://evil.example/", "//evil.example/console/", "/console/../v1", `/\evil.example`,
		"javascript:alert(1)", "/console/" + strings.Repeat("x", maxNext)} {
		w := ask(c, "https://berth.test/console/sign-in/start?"+url.Values{"next": {next}}.Encode(), nil)
		if want := "https://login.example/authorize?next=%2Fconsole%2F"; w.Header().Get("Location") != want {
			t.Errorf("%s: got %s", next, w.Header().Get("Location"))
		}
		s.next = next // what a provider cannot change, the console does not trust either
		if w := ask(c, "https://berth.test"+callbackPath, nil, "__Host-berth_sign_in=flow"); len(next) < maxNext &&
			!strings.Contains(w.Body.String(), `content="0;url=/console/"`) {
			t.Errorf("%s: got %s", next, w.Body)
		}
	}
	w := ask(c, "http://evil.example/console/sign-in/start?next=/console/usage", nil)
	if got := w.Header().Get("Location"); got != "https://berth.test/console/sign-in/start?next=%2Fconsole%2Fusage" {
		t.Errorf("from another host: got %s", got)
	}
	if page := ask(c, "https://berth.test/console/sign-in", nil).Body.String(); !strings.Contains(page,
		"Sign in with Dex &lt;&amp;&#34;") {
		t.Errorf("the name of the provider: got %s", page)
	}
}

// Only the browser that began a sign-in gets its session: a page of another site that sends a visitor to the callback
// with a code of its own changes nothing.
func TestLoginCSRF(t *testing.T) {
	s := &fakeSignIn{origin: "https://berth.test", next: "/console/usage"}
	c := New(http.HandlerFunc(keyAPI), slog.New(slog.DiscardHandler), WithSignIn(s))
	callback := "https://berth.test" + callbackPath + "?code=evil&state=x"
	for name, cookies := range map[string][]string{
		"no cookie":          nil,
		"a planted cookie":   {"berth_sign_in=flow"},
		"two cookies":        {"__Host-berth_sign_in=flow; __Host-berth_sign_in=flow"},
		"another's cookie":   {"__Host-berth_sign_in=other"},
		"one of the console": {"__Host-berth_console=flow"},
	} {
		w := ask(c, callback, nil, cookies...)
		if w.Code != http.StatusBadRequest || strings.Contains(strings.Join(w.Header().Values("Set-Cookie"), ""),
			"berth_console") {
			t.Errorf("%s: got %d %v", name, w.Code, w.Header())
		}
	}
	w := ask(c, "https://berth.test/console/sign-in/start", nil)
	if got := w.Header().Get("Set-Cookie"); got !=
		"__Host-berth_sign_in=flow; Path=/; Max-Age=600; HttpOnly; Secure; SameSite=Lax" {
		t.Errorf("got %s", got)
	}
	w = ask(c, callback, nil, "__Host-berth_sign_in=flow")
	set := w.Header().Values("Set-Cookie")
	if w.Code != http.StatusOK || len(set) != 2 || !strings.HasPrefix(set[0], "__Host-berth_sign_in=; Path=/; Max-Age=0") ||
		!strings.HasPrefix(set[1], "__Host-berth_console=") || !strings.HasSuffix(set[1],
		"; HttpOnly; Secure; SameSite=Strict") || strings.Contains(w.Body.String(), "sk-") {
		t.Fatalf("got %d %q %s", w.Code, set, w.Body)
	}

	token, _, _ := strings.Cut(strings.TrimPrefix(set[1], "__Host-berth_console="), ";")
	l, ok := c.sessions.find(token, time.Now())
	if !ok || len(l.All) != 2 || l.All[0].Label() != "ada@example.com · proj_red" || !l.All[1].Admin {
		t.Errorf("got %+v, %v", l, ok)
	}
	page := ask(c, "https://berth.test/console/usage", nil, "__Host-berth_console="+token).Body.String()
	_, form, _ := strings.Cut(page, `name="form" value="`)
	form, _, _ = strings.Cut(form, `"`)
	ask(c, "https://berth.test/console/sign-out", url.Values{"form": {form}}, "__Host-berth_console="+token)
	if strings.Join(s.ended, " ") != "sk-red sk-all" {
		t.Errorf("a sign-out ended %q", s.ended)
	}
}
