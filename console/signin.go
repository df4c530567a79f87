package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A signInPage is the page to sign in.
type signInPage struct {
	Next  string
	Error string
	Add   bool      // the key is added to those of the session
	Keys  []account // of the session, if one is added

	visit *visit
}

// Version returns the server's version.
func (p signInPage) Version() string {
	var build berth.Build
	if p.visit == nil || p.visit.get("/version", &build) != nil {
		return ""
	}
	return build.Version
}

// Host returns the name by which the browser knows the server.
func (p signInPage) Host() string {
	if p.visit == nil {
		return ""
	}
	return p.visit.r.Host
}

// projectOf returns the name of the project of the visit's key, or the end of its id without a name.
func projectOf(v *visit, admin bool) string {
	var spent list[spending]
	if admin || v.get("/v1/organization/spend?limit=1", &spent) != nil || len(spent.Data) == 0 {
		return ""
	}
	id := spent.Data[0].ProjectID
	if v.console.Names != nil {
		if name := v.console.Names(v.r.Context(), id); name != "" {
			return name
		}
	}
	return short(string(id))
}

// probe is a small request that every key of a project may make.
const probe = "/v1/containers?limit=1"

// probeAdmin is one that every admin key may make.
const probeAdmin = "/v1/organization/projects?limit=1"

// show serves GET /console/sign-in. Visitors that need no key are sent on.
func (p *signInPage) show(v *visit) error {
	next := safeNext(v.r.URL.Query().Get("next"))
	if v.r.URL.Query().Get("add") != "" && v.token != "" {
		return v.show(http.StatusOK, "signin", "Use another key",
			signInPage{Next: next, Add: true, Keys: v.signed.All, visit: v})
	}
	_, err := probeKey(v)
	if err == nil {
		return v.redirect(next)
	}
	if f, ok := errors.AsType[*failure](err); ok && f.Status == http.StatusUnauthorized {
		v.endSession()
		return v.show(http.StatusOK, "signin", "Sign in", signInPage{Next: next, visit: v})
	}
	return err
}

// probeKey reports whether the key of the visit is an admin key, or why the API refuses it.
func probeKey(v *visit) (admin bool, err error) {
	var list struct{}
	err = v.get(probe, &list)
	if f, ok := errors.AsType[*failure](err); !ok || f.Status != http.StatusForbidden || v.key == "" {
		return false, err
	}
	if v.get(probeAdmin, &list) == nil {
		return true, nil
	}
	return false, err
}

// signIn serves POST /console/sign-in: it starts a session if the API accepts the key, or adds
// the key to the session. A key is added only by someone who has one of the session's: the
// session may be another's, whose page on the same domain has set its cookie here.
func (p *signInPage) signIn(v *visit) error {
	*p = signInPage{visit: v, Next: safeNext(v.form.fields.Get("next")),
		Add: v.form.fields.Get("add") != "" && v.token != ""}
	before, token := accounts{}, ""
	if p.Add {
		p.Keys = v.signed.All
		if !v.signed.has(strings.TrimSpace(v.form.fields.Get("own"))) {
			p.Error = "The session has no such key. If you do not know its keys, sign out: another has started it."
			return v.show(http.StatusForbidden, "signin", "Use another key", p)
		}
		before, token = v.signed, v.token
	} else {
		v.endSession()
	}
	v.key = strings.TrimSpace(v.form.fields.Get("key"))
	admin, err := probeKey(v)
	if f, ok := errors.AsType[*failure](err); ok && (f.Status == http.StatusUnauthorized ||
		f.Status == http.StatusForbidden) {
		p.Error = f.Message
		return v.show(f.Status, "signin", "Sign in", p)
	}
	if err != nil {
		return err
	}
	if v.key != "" {
		after := before.using(account{Key: v.key, Admin: admin, Project: projectOf(v, admin)})
		if token != "" {
			v.console.sessions.change(token, after)
		} else {
			http.SetCookie(v.w, cookie(v.r, v.console.sessions.start(after, time.Now())))
		}
	}
	if p.Add {
		p.Next = Path
	}
	return v.redirect(p.Next)
}

// switchKey serves POST /console/switch: it uses another key of the session.
func switchKey(v *visit) error {
	to, err := strconv.Atoi(v.form.fields.Get("to"))
	if err != nil || v.token == "" || to < 0 || to >= len(v.signed.All) {
		return &failure{Status: http.StatusBadRequest, Message: "The session has no such key."}
	}
	v.signed.Used = to
	v.console.sessions.change(v.token, v.signed)
	return v.redirect(Path)
}

// signOut serves POST /console/sign-out.
func signOut(v *visit) error {
	v.endSession()
	return v.redirect("/console/sign-in")
}

// safeNext returns where to go after signing in, if that is a page of the console.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, Path) ||
		strings.ContainsAny(next, "\\\r\n\t") ||
		strings.Contains(u.Path, "..") {
		return Path
	}
	return next
}
