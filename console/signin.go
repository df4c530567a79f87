package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A signInPage is the data of the page to sign in.
type signInPage struct {
	Next  string
	Error string
}

// probe is a small request that every key of a project may make.
const probe = "/v1/containers?limit=1"

// showSignIn serves GET /console/sign-in. Visitors that need no key are sent on.
func (v *visit) showSignIn() error {
	next := safeNext(v.r.URL.Query().Get("next"))
	var list struct{}
	err := v.get(probe, &list)
	if err == nil {
		return v.redirect(next)
	}
	if f, ok := errors.AsType[*failure](err); ok && f.Status == http.StatusUnauthorized {
		v.endSession()
		return v.show(http.StatusOK, "signin", "Sign in", signInPage{Next: next})
	}
	return err
}

// signIn serves POST /console/sign-in: it starts a session if the API accepts the key.
func (v *visit) signIn() error {
	next := safeNext(v.r.PostForm.Get("next"))
	v.endSession()
	v.key = strings.TrimSpace(v.r.PostForm.Get("key"))
	var list struct{}
	err := v.get(probe, &list)
	if f, ok := errors.AsType[*failure](err); ok && (f.Status == http.StatusUnauthorized || f.Status == http.StatusForbidden) {
		return v.show(f.Status, "signin", "Sign in", signInPage{Next: next, Error: f.Message})
	}
	if err != nil {
		return err
	}
	if v.key != "" {
		http.SetCookie(v.w, cookie(v.r, v.console.sessions.start(v.key, time.Now())))
	}
	return v.redirect(next)
}

// signOut serves POST /console/sign-out.
func (v *visit) signOut() error {
	v.endSession()
	return v.redirect("/console/sign-in")
}

// safeNext returns where to go after signing in, if that is a page of the console.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, Path) || strings.ContainsAny(next, "\\\r\n\t") ||
		strings.Contains(u.Path, "..") {
		return Path
	}
	return next
}
