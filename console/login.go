package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berth-run/berth/people"
)

// Logins let programs on a person's computer act for the person; *people.Service is one.
type Logins interface {
	// Authorize returns a code for the program that listens at redirect. It acts for the person with a token.
	Authorize(ctx context.Context, token, redirect, challenge string) (code string, err error)
	// FindDevice returns the device that a person has entered the user code of.
	FindDevice(ctx context.Context, token, userCode string) (*people.Device, error)
	AnswerDevice(ctx context.Context, token, userCode string, approve bool) error
}

// WithLogins lets people sign in the command line.
func WithLogins(l Logins) Option {
	return func(c *Console) {
		c.logins = l
		c.on("GET /console/authorize", handle((*loginPage).showBrowser))
		c.on("POST /console/authorize", handle((*loginPage).answerBrowser))
		c.on("GET /console/device", handle((*loginPage).showDevice))
		c.on("POST /console/device", handle((*loginPage).answerDevice))
	}
}

// A loginPage asks a person whether a program may act for him or her. Nothing on it is the program's text: whoever has
// sent a link to it cannot say there what it is for.
type loginPage struct {
	Persons []personToken

	// Of a program that gets a code by a redirect.
	Redirect, Challenge, State string

	// Of a device.
	Code   string
	Device *people.Device // nil: the person has to enter the code
	Error  string
	Done   string // what has happened
}

// A personToken is a token of the person, by its place in the session.
type personToken struct {
	Index int
	account
}

// persons finds the tokens of the person. A visitor without one is sent to sign in, and returns here.
func (p *loginPage) persons(v *visit) (ready bool, err error) {
	for i, a := range v.signed.All {
		if a.Person != "" {
			p.Persons = append(p.Persons, personToken{i, a})
		}
	}
	if len(p.Persons) > 0 {
		return true, nil
	}
	if v.r.Method != http.MethodGet {
		return false, &failure{Status: http.StatusUnauthorized, Message: "Your session has ended. Sign in again."}
	}
	return false, v.redirect("/console/sign-in/start?" + url.Values{"next": {v.r.URL.RequestURI()}}.Encode())
}

// token returns the token that the form selects.
func (p *loginPage) token(v *visit) (string, error) {
	i, err := strconv.Atoi(v.form.fields.Get("as"))
	for _, t := range p.Persons {
		if err == nil && t.Index == i {
			return t.Key, nil
		}
	}
	return "", &failure{Status: http.StatusBadRequest, Message: "The session has no such project."}
}

// read reads what the program has asked for.
func (p *loginPage) read(from url.Values) error {
	p.Redirect, p.Challenge, p.State = from.Get("redirect_uri"), from.Get("code_challenge"), from.Get("state")
	err := errors.Join(people.CheckRedirect(p.Redirect), people.CheckChallenge(p.Challenge))
	if err != nil || len(p.State) < 16 || len(p.State) > 128 {
		return &failure{Status: http.StatusBadRequest,
			Message: "This is not a link of berth login --browser. Run that command again on your computer."}
	}
	return nil
}

// showBrowser serves GET /console/authorize.
func (p *loginPage) showBrowser(v *visit) error {
	if err := p.read(v.r.URL.Query()); err != nil {
		return err
	}
	if ready, err := p.persons(v); !ready {
		return err
	}
	return v.show(http.StatusOK, "authorize", "Sign in the command line", p)
}

// answerBrowser serves POST /console/authorize: the browser goes to the program, which listens on this computer.
func (p *loginPage) answerBrowser(v *visit) error {
	if err := p.read(v.form.fields); err != nil {
		return err
	}
	if ready, err := p.persons(v); !ready {
		return err
	}
	answer := url.Values{"state": {p.State}}
	if v.form.fields.Get("answer") == "allow" {
		token, err := p.token(v)
		if err != nil {
			return err
		}
		code, err := v.console.logins.Authorize(v.r.Context(), token, p.Redirect, p.Challenge)
		if err != nil {
			return loginFailure(err)
		}
		answer.Set("code", code)
	} else {
		answer.Set("error", string(people.ErrDenied))
	}
	return v.show(http.StatusOK, "returning", "Sign in the command line", p.Redirect+"?"+answer.Encode())
}

// showDevice serves GET /console/device. It takes no code from the link: the person enters it.
func (p *loginPage) showDevice(v *visit) error {
	if ready, err := p.persons(v); !ready {
		return err
	}
	return p.showForm(v, http.StatusOK)
}

func (p *loginPage) showForm(v *visit, status int) error {
	return v.show(status, "device", "Sign in a computer", p)
}

// answerDevice serves POST /console/device: first with the code, then with the answer.
func (p *loginPage) answerDevice(v *visit) error {
	if ready, err := p.persons(v); !ready {
		return err
	}
	p.Code = v.form.fields.Get("code")
	answer := v.form.fields.Get("answer")
	var err error
	switch answer {
	case "allow", "deny":
		var token string
		if token, err = p.token(v); err != nil {
			return err
		}
		err = v.console.logins.AnswerDevice(v.r.Context(), token, p.Code, answer == "allow")
		if p.Done = "The computer was refused. You can close this page."; answer == "allow" {
			p.Done = "The computer is signed in as you. You can close this page."
		}
	default:
		p.Device, err = v.console.logins.FindDevice(v.r.Context(), p.Persons[0].Key, p.Code)
	}
	switch {
	case errors.Is(err, people.ErrUserCode):
		p.Done, p.Error = "", "No computer waits for this code. It is valid for ten minutes and once."
		return p.showForm(v, http.StatusNotFound)
	case err != nil:
		return loginFailure(err)
	}
	return p.showForm(v, http.StatusOK)
}

// loginFailure returns the error that the person sees.
func loginFailure(err error) error {
	switch {
	case errors.Is(err, people.ErrGuesses):
		return &failure{Status: http.StatusTooManyRequests,
			Message: "You have entered too many codes that no computer waits for. Try again in ten minutes."}
	case errors.Is(err, people.ErrNoPerson):
		return &failure{Status: http.StatusUnauthorized, Message: "Your session has ended. Sign in again."}
	}
	return err
}
