package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/people"
)

// A SignIn signs people in with a provider of identities; oidc.Door is one.
type SignIn interface {
	Name() string   // of the provider
	Origin() string // of this server, as the provider knows it

	// Callback is the path at which the provider's answer arrives.
	Callback() string

	// Start begins a sign-in: the browser goes to location and keeps the cookie.
	Start(ctx context.Context, next string) (location, cookie string, err error)
	// Finish ends a sign-in with the provider's answer and the cookie.
	// An error for the person is a *people.Refusal.
	Finish(ctx context.Context, query url.Values, cookie string) (s *people.Session, next string, err error)
	// SignOut ends the session of a token.
	SignOut(ctx context.Context, token string) error
}

// An Option is an option of New.
type Option func(*Console)

// WithSignIn lets people sign in without a key.
func WithSignIn(s SignIn) Option {
	return func(c *Console) {
		c.signIn = s
		c.on("GET /console/sign-in/start", startSignIn)
		c.on("GET "+s.Callback(), finishSignIn)
	}
}

// maxNext bounds the path to return to, which a cookie holds.
const maxNext = 1000

// flowCookie returns the cookie of a sign-in under way; an empty text deletes it. The provider's redirect is a request
// of another site, so it is not as strict as the session's.
func (c *Console) flowCookie(text string) *http.Cookie {
	k := &http.Cookie{Name: "berth_sign_in", Value: text, Path: "/console/sign-in", HttpOnly: true,
		SameSite: http.SameSiteLaxMode, MaxAge: 600}
	if u, err := url.Parse(c.signIn.Origin()); err == nil && u.Scheme == "https" {
		k.Name, k.Path, k.Secure = "__Host-berth_sign_in", "/", true
	}
	if text == "" {
		k.MaxAge = -1
	}
	return k
}

// startSignIn serves GET /console/sign-in/start.
func startSignIn(v *visit) error {
	s := v.console.signIn
	next := safeNext(v.r.URL.Query().Get("next"))
	if len(next) > maxNext {
		next = Path
	}
	if u, err := url.Parse(s.Origin()); err == nil && u.Host != v.r.Host {
		// the provider redirects there, where the cookie must be
		return v.redirect(s.Origin() + "/console/sign-in/start?" + url.Values{"next": {next}}.Encode())
	}
	location, cookie, err := s.Start(v.r.Context(), next)
	if err != nil {
		return refusal(err)
	}
	http.SetCookie(v.w, v.console.flowCookie(cookie))
	return v.redirect(location)
}

// finishSignIn serves GET /console/sign-in/callback, where the provider redirects to. The browser sends the session's
// cookie with requests of this site only, so this page opens the next one itself, in place of a redirect.
func finishSignIn(v *visit) error {
	s := v.console.signIn
	empty := v.console.flowCookie("")
	var cookie string
	if found := v.r.CookiesNamed(empty.Name); len(found) == 1 {
		cookie = found[0].Value
	}
	http.SetCookie(v.w, empty)
	session, next, err := s.Finish(v.r.Context(), v.r.URL.Query(), cookie)
	if err != nil {
		return refusal(err)
	}
	v.endSession()
	l := accounts{}
	for _, t := range session.Tokens {
		a := account{Key: t.Secret, Admin: t.Project == berth.AdminProject, Person: session.Person.Label(),
			Project: string(t.Project)}
		if name := v.console.Names; name != nil && !a.Admin {
			a.Project = cmp.Or(name(v.r.Context(), t.Project), a.Project)
		}
		l.All = append(l.All, a)
	}
	http.SetCookie(v.w, cookieUntil(v.r, v.console.sessions.start(l, time.Now()), session.Expires))
	if next = safeNext(next); next == Path && l.All[0].Admin {
		next = "/console/overview"
	}
	return v.show(http.StatusOK, "signedin", "Signed in", next)
}

// cookieUntil returns the cookie of a session that ends at a time, if that is before the end of all sessions.
func cookieUntil(r *http.Request, token string, end time.Time) *http.Cookie {
	c := cookie(r, token)
	c.MaxAge = max(1, min(c.MaxAge, int(time.Until(end).Seconds())))
	return c
}

// refusal returns the error that a person sees.
func refusal(err error) error {
	if r, ok := errors.AsType[*people.Refusal](err); ok {
		return &failure{r.Status, r.Message}
	}
	return err
}

// endPerson ends the sessions of people whose tokens the visit has.
func (v *visit) endPerson() {
	for _, a := range v.signed.All {
		if a.Person == "" || v.console.signIn == nil {
			continue
		}
		if err := v.console.signIn.SignOut(context.WithoutCancel(v.r.Context()), a.Key); err != nil {
			v.console.log.Error("failed to end the session of a person; it ends when it expires", "err", err)
		}
	}
}
