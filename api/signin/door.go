// Package signin serves what programs on the computers of people use to sign them in: the token endpoint of OAuth 2.0
// with the grants of an authorization code with PKCE and of a device (RFC 8628), and the end of a session (RFC 7009).
// The person confirms in the console.
//
// A program has no secret: a code is of use only to the program that has the verifier or the device code.
package signin

import (
	"errors"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/people"
)

// ClientID is the only client that the endpoints know: the command line.
const ClientID = "berth-cli"

// Paths of the endpoints, and of the page on which a person enters the code of a device.
const (
	DevicePath  = "/oauth/device_authorization"
	TokenPath   = "/oauth/token"
	RevokePath  = "/oauth/revoke"
	confirmPath = "/console/device"
)

// Names of grants.
const (
	grantCode   = "authorization_code"
	grantDevice = "urn:ietf:params:oauth:grant-type:device_code"
)

// maxForm bounds the body of a request.
const maxForm = 8 << 10

// A Door serves the endpoints. It is safe for concurrent use.
type Door struct {
	People *people.Service
	Origin string       // of this server, as browsers reach it
	Admit  func() error // refuses sign-ins while the server takes none; nil admits all
	Now    func() time.Time
}

// Routes returns the routes. They need no key.
func (d *Door) Routes() []exchange.Route {
	if d == nil {
		return nil
	}
	return []exchange.Route{
		d.on("POST "+DevicePath, d.startDevice),
		d.on("POST "+TokenPath, d.token),
		d.on("POST "+RevokePath, d.revoke),
	}
}

// on returns a route, whose errors have the form of OAuth 2.0.
func (d *Door) on(pattern string, serve func(http.ResponseWriter, *http.Request, url.Values) error) exchange.Route {
	rt := exchange.On(pattern, func(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
		form, err := d.form(x, r)
		if err == nil {
			err = serve(x, r, form)
		}
		refused, ok := errors.AsType[*refusal](err)
		if !ok {
			return err
		}
		if refused.status == http.StatusTooManyRequests {
			x.Header().Set("Retry-After", "60")
		}
		return write(x, refused.status, oauthError{refused.code, refused.description})
	}, exchange.Keyless, exchange.NoCORS)
	rt.WriteError = func(x *exchange.Exchange, status int, e exchange.Error) {
		_ = write(x, status, oauthError{"server_error", e.Message}) // fails if the client is gone
	}
	return rt
}

// A deviceAnswer is the answer to the request of a device. It has no verification_uri_complete: a person who
// enters the code has read it where the program runs, and not in the link of somebody else.
type deviceAnswer struct {
	DeviceCode      string `json:"device_code"`
	UserCode        string `json:"user_code"`
	VerificationURI string `json:"verification_uri"`
	ExpiresIn       int64  `json:"expires_in"` // seconds
	Interval        int64  `json:"interval"`   // seconds
}

// startDevice serves POST /oauth/device_authorization.
func (d *Door) startDevice(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	device, err := d.People.StartDevice(r.Context(), address)
	if err != nil {
		return refuse(err)
	}
	return write(w, http.StatusOK, deviceAnswer{DeviceCode: device.Code, UserCode: device.UserCode,
		VerificationURI: d.Origin + confirmPath, ExpiresIn: int64(device.Expires.Sub(device.Created).Seconds()),
		Interval: int64(device.Interval.Seconds())})
}

// A tokenAnswer is a session of a person. The other fields than those of OAuth 2.0 tell whose it is.
type tokenAnswer struct {
	AccessToken string          `json:"access_token"`
	TokenType   string          `json:"token_type"` // "Bearer"
	ExpiresIn   int64           `json:"expires_in"` // seconds
	Person      string          `json:"person"`
	PersonID    string          `json:"person_id"`
	ProjectID   berth.ProjectID `json:"project_id"` // "organization" for an administrator's
}

// token serves POST /oauth/token.
func (d *Door) token(w http.ResponseWriter, r *http.Request, form url.Values) error {
	var s *people.Session
	var err error
	switch grant := form.Get("grant_type"); grant {
	case grantCode:
		s, err = d.People.Exchange(r.Context(), form.Get("code"), form.Get("redirect_uri"), form.Get("code_verifier"))
	case grantDevice:
		s, err = d.People.PollDevice(r.Context(), form.Get("device_code"))
	default:
		return badRequest("unsupported_grant_type", "Expected authorization_code or the grant of a device code.")
	}
	if err != nil {
		return refuse(err)
	}
	return write(w, http.StatusOK, tokenAnswer{AccessToken: s.Tokens[0].Secret, TokenType: "Bearer",
		ExpiresIn: max(1, int64(s.Expires.Sub(d.Now()).Seconds())), Person: s.Person.Label(), PersonID: s.Person.ID,
		ProjectID: s.Tokens[0].Project})
}

// revoke serves POST /oauth/revoke. A token that has ended already is no error.
func (d *Door) revoke(w http.ResponseWriter, r *http.Request, form url.Values) error {
	if err := d.People.SignOut(r.Context(), form.Get("token")); err != nil {
		return err
	}
	return write(w, http.StatusOK, struct{}{})
}

// form reads the form of a request. Parameters of the query do not count: they are in the logs of proxies.
func (d *Door) form(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" || r.URL.RawQuery != "" {
		return nil, badRequest("invalid_request", "Expected a form (application/x-www-form-urlencoded) and no query.")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, badRequest("invalid_request", "The form cannot be read.")
	}
	for _, values := range r.PostForm {
		if len(values) > 1 {
			return nil, badRequest("invalid_request", "A parameter is given twice.")
		}
	}
	if r.PostForm.Get("client_id") != ClientID {
		return nil, badRequest("invalid_client", "Expected client_id "+ClientID+".")
	}
	if d.Admit != nil && r.URL.Path != RevokePath && d.Admit() != nil {
		return nil, &refusal{http.StatusServiceUnavailable, string(people.ErrTooMany),
			"This server signs nobody in until its audit record has reached its target. Ask its operator."}
	}
	return r.PostForm, nil
}

// An oauthError is an error in the form of RFC 6749, section 5.2.
type oauthError struct {
	Error       string `json:"error"`
	Description string `json:"error_description,omitempty"`
}

// A refusal is an error for the client.
type refusal struct {
	status            int // of HTTP
	code, description string
}

func (r *refusal) Error() string { return r.code }

func badRequest(code, description string) error {
	return &refusal{http.StatusBadRequest, code, description}
}

// refuse returns the error of a login for the client.
func refuse(err error) error {
	known, ok := errors.AsType[people.LoginError](err)
	switch {
	case !ok:
		return err
	case known == people.ErrTooMany:
		return &refusal{http.StatusTooManyRequests, string(known), "Too many programs wait for their sign-in."}
	}
	return badRequest(string(known), "")
}

// write answers with JSON that nobody may store.
func write(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Cache-Control", "no-store")
	return exchange.WriteJSON(w, status, body)
}
