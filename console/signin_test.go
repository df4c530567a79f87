package console

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestSafeNext(t *testing.T) {
	for next, want := range map[string]string{
		"/console/responses/resp_1?x=y": "/console/responses/resp_1?x=y",
		"":                              Path,
		"https://evil.example/console/": Path,
		"//evil.example/console/":       Path,
		"/console/../v1/models":         Path,
		"/console/%2e%2e/v1/models":     Path,
		"/\\evil.example/console/":      Path,
		"/console/\\..":                 Path,
		"/v1/models":                    Path,
		"javascript:alert(1)":           Path,
	} {
		if got := safeNext(next); got != want {
			t.Errorf("%q: got %q, want %q", next, got, want)
		}
	}
}

// A keyAPI accepts the keys that begin with sk-.
func keyAPI(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer sk-") {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"message":"No."}}`)
		return
	}
	_, _ = io.WriteString(w, `{"data":[]}`)
}

// ask sends a request to a console, with cookies, and a form if there are fields. It returns the answer.
func ask(c *Console, url string, form url.Values, cookies ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, url, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, cookie := range cookies {
		r.Header.Add("Cookie", cookie)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

// A page on another host of the domain sets a cookie with a session of its own: over HTTPS it
// cannot, and otherwise the request is refused if the visitor has a session.
func TestPlantedCookie(t *testing.T) {
	c := New(http.HandlerFunc(keyAPI), slog.New(slog.DiscardHandler))
	mine, planted := c.sessions.start(keyOf("sk-mine"), time.Now()), c.sessions.start(keyOf("sk-planted"), time.Now())
	for _, test := range []struct {
		url     string
		cookies []string
		status  int
		label   string // of the key that the page to add one shows
	}{
		{"http://berth.test/", []string{"berth_console=" + mine}, http.StatusOK, "mine"},
		{"http://berth.test/", []string{"berth_console=" + planted + "; berth_console=" + mine}, http.StatusBadRequest,
			""},
		{"http://berth.test/", []string{"berth_console=" + mine, "berth_console=" + planted}, http.StatusBadRequest,
			""},
		{"http://berth.test/", []string{"berth_console=" + mine + "; berth_console=x"}, http.StatusBadRequest, ""},
		{"https://berth.test/", []string{"__Host-berth_console=" + mine}, http.StatusOK, "mine"},
		{"https://berth.test/", []string{"berth_console=" + planted + "; __Host-berth_console=" + mine}, http.StatusOK,
			"mine"},
		{"https://berth.test/", []string{"berth_console=" + planted}, http.StatusOK, ""},
	} {
		w := ask(c, test.url+"console/sign-in?add=1", nil, test.cookies...)
		if w.Code != test.status || test.label != "" && !strings.Contains(w.Body.String(), "Key …"+test.label) ||
			strings.Contains(w.Body.String(), "nted") {
			t.Errorf("%s %q: status %d: %s", test.url, test.cookies, w.Code, w.Body)
		}
	}
}

// A key is added to a session only with one of its keys.
func TestAddKey(t *testing.T) {
	c := New(http.HandlerFunc(keyAPI), slog.New(slog.DiscardHandler))
	token := c.sessions.start(keyOf("sk-first"), time.Now())
	cookie := "berth_console=" + token
	page := ask(c, "http://berth.test/console/sign-in?add=1", nil, cookie).Body.String()
	if !strings.Contains(page, "<li>Key …irst</li>") || strings.Contains(page, "sk-first") || !strings.Contains(page,
		`name="own"`) {
		t.Errorf("the page does not ask for a key of the session: %s", page)
	}
	r := httptest.NewRequest(http.MethodGet, "/console/", nil)
	r.Header.Set("Cookie", cookie)
	v, err := c.visit(httptest.NewRecorder(), r)
	if err != nil {
		t.Fatal(err)
	}
	for own, want := range map[string]int{"": 1, "sk-other": 1, "sk-second": 1, "sk-firs": 1, " sk-first ": 2} {
		form := url.Values{"form": {v.formToken().token}, "add": {"yes"}, "key": {"sk-second"}, "own": {own}}
		w := ask(c, "http://berth.test/console/sign-in", form, cookie)
		l, ok := c.sessions.find(token, time.Now())
		if !ok || len(l.All) != want || (w.Code == http.StatusSeeOther) != (want == 2) {
			t.Errorf("with %q: status %d, %d keys; want %d", own, w.Code, len(l.All), want)
		}
		c.sessions.change(token, keyOf("sk-first"))
	}
}
