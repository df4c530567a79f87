package console

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A visit is one request of a browser, with its session and its form. It asks the API with
// the key of the session (client.go).
type visit struct {
	console   *Console
	w         http.ResponseWriter
	r         *http.Request
	token     string // of the session; "" without one
	key       string // of the API; "" without a session
	signed    accounts
	form      *form                  // of a POST; it is empty until it was checked
	waiting   *int                   // responses that wait for approval; nil until they were counted
	keys      map[berth.KeyID]string // names of keys; nil until one was asked for
	templates map[string]string      // names of templates; nil until one was asked for
	once      string                 // Idempotency-Key of the visit's POST to the API; "" for none

	// access tells what the visitor may do; nil until it was asked for
	access func(route string, needed ...berth.Permission) error
}

// A page is the data of a page's template.
type page struct {
	Title    string
	Form     formToken
	SignedIn bool
	Admin    bool // the key is an admin key
	Signed   accounts
	Path     string // of the page
	Data     any
	Provider string // with which people sign in; "" if they do not

	visit *visit // nil in tests of templates
}

// Waiting returns the number of responses that wait for approval; 0 if it is not known.
func (p *page) Waiting() int {
	if p.visit == nil || p.Admin {
		return 0
	}
	if p.visit.waiting == nil {
		n, _ := countWaiting(p.visit) // the page itself reports errors
		p.visit.waiting = &n
	}
	return *p.visit.waiting
}

// A navLink is a link of the navigation.
type navLink struct {
	Path, Icon, Label string
	Here              bool // the page is the link's, or below it
	Waiting           int
}

// Link returns a link of the navigation.
func (p *page) Link(path, icon, label string) navLink {
	here := p.Path == path || path != Path && strings.HasPrefix(p.Path, path+"/")
	switch path {
	case "/console/responses":
		here = here || p.Path == "/console/compare"
	case "/console/storage":
		here = here || p.Path == "/console/snapshots" || p.Path == "/console/retention" ||
			strings.HasPrefix(p.Path, "/console/templates/")
	}
	return navLink{path, icon, label, here, p.Waiting()}
}

// visit returns the visit of a request. It has no session if that is an error.
func (c *Console) visit(w http.ResponseWriter, r *http.Request) (*visit, error) {
	v := &visit{console: c, w: w, r: r, form: &form{}}
	token, err := tokenOf(r)
	if l, ok := c.sessions.find(token, time.Now()); ok {
		v.token, v.signed, v.key = token, l, l.All[l.Used].Key
	}
	return v, err
}

// admin reports whether the key of the visit is an admin key.
func (v *visit) admin() bool { return v.token != "" && v.signed.All[v.signed.Used].Admin }

// formToken returns the token that the forms of the visit's session have.
func (v *visit) formToken() formToken {
	mac := hmac.New(sha256.New, v.console.secret)
	mac.Write([]byte(v.token))
	return formToken{hex.EncodeToString(mac.Sum(nil)), v}
}

// checkForm refuses a POST that another site's page has sent, or one without the token of
// the session's forms.
func (v *visit) checkForm(most int64) error {
	if v.r.Method == http.MethodGet || v.r.Method == http.MethodHead {
		return nil
	}
	if err := v.console.origins.Check(v.r); err != nil {
		return &failure{Status: http.StatusForbidden, Message: "This form was sent by a page of another site."}
	}
	if most > maxForm {
		// Only those whom the API serves may send much.
		if err := v.get(probe, &struct{}{}); err != nil {
			return err
		}
	}
	f, err := readForm(v.w, v.r, most, v.formToken().token)
	if err == nil {
		v.form = f
	}
	return err
}

// show answers with a page.
func (v *visit) show(status int, name, title string, data any) error {
	var b bytes.Buffer
	p := &page{visit: v, Title: title, Form: v.formToken(), SignedIn: v.token != "", Admin: v.admin(), Signed: v.signed,
		Path: v.r.URL.Path, Data: data}
	if v.console.signIn != nil {
		p.Provider = v.console.signIn.Name()
	}
	if err := templates().ExecuteTemplate(&b, name, p); err != nil {
		return fmt.Errorf("render page %s: %w", name, err)
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(b.Bytes()) // fails if the browser is gone
	return nil
}

// text returns what was written in a field of several lines. Browsers send their ends as CR LF, which shells
// would take for a part of a command.
func (v *visit) text(name string) string {
	return strings.ReplaceAll(v.form.fields.Get(name), "\r\n", "\n")
}

// redirect sends the browser to a page of the console.
func (v *visit) redirect(path string) error {
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}

// fail answers with an error: with the form to sign in if the API needs a key.
func (v *visit) fail(err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		if v.r.Context().Err() != nil {
			return
		}
		v.console.log.Error("console failed", "path", v.r.URL.Path, "err", err)
		f = &failure{Status: http.StatusInternalServerError,
			Message: "The console failed. The server's log has the reason."}
	}
	if f.Status == http.StatusUnauthorized {
		v.endSession()
		if v.r.Method == http.MethodGet && !strings.HasSuffix(v.r.URL.Path, "/events") {
			_ = v.redirect("/console/sign-in?" + url.Values{"next": {v.r.URL.RequestURI()}}.Encode()) // never fails
			return
		}
	}
	if err := v.show(f.Status, "failure", "Error", f); err != nil {
		v.console.log.Error("console failed", "path", v.r.URL.Path, "err", err)
	}
}

// endSession signs the visitor out.
func (v *visit) endSession() {
	if v.token != "" {
		v.endPerson()
		v.console.sessions.end(v.token)
		v.token, v.key, v.signed = "", "", accounts{}
		http.SetCookie(v.w, cookie(v.r, ""))
	}
}

// notFound serves all other paths.
func notFound(v *visit) error {
	return &failure{Status: http.StatusNotFound, Message: "The console has no such page."}
}
