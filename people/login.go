package people

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const (
	codeLife   = time.Minute      // of an authorization code
	deviceLife = 10 * time.Minute // of a device code, which a person has to find and confirm
	interval   = 5 * time.Second  // between polls of a device

	maxDevices        = 1000 // device codes that wait, of all addresses
	maxDevicesAddress = 100  // and of one address
	maxGuesses        = 10   // wrong user codes of a person within deviceLife
)

// A LoginError is an error for the program that signs a person in: a code of OAuth 2.0 or of RFC 8628.
type LoginError string

// The errors of a login.
const (
	ErrPending      LoginError = "authorization_pending"
	ErrSlowDown     LoginError = "slow_down"
	ErrDenied       LoginError = "access_denied"
	ErrExpired      LoginError = "expired_token"
	ErrInvalidGrant LoginError = "invalid_grant"
	ErrTooMany      LoginError = "temporarily_unavailable"
)

func (e LoginError) Error() string { return string(e) }

// ErrUserCode is the error for a user code that no device has.
var ErrUserCode = errors.New("no program waits for this code")

// ErrGuesses is the error for somebody who has entered too many wrong user codes.
var ErrGuesses = errors.New("too many wrong codes")

// ErrNoPerson is the error for a token that is not of a person who may sign in a program.
var ErrNoPerson = errors.New("the token is not of a person with access")

// The states of a login. Each is left once only.
const (
	stateWaiting  = "" // for the person
	stateApproved = "approved"
	stateDenied   = "denied"
	stateUsed     = "used"
)

// A login is what a program on a person's computer waits for, or may exchange for a session: by the hash of the code
// that it has.
type login struct {
	Hash     string `json:"hash"`
	State    string `json:"state"`
	Created  int64  `json:"created_at"`
	Expires  int64  `json:"expires_at"`
	Approver string `json:"approver,omitempty"` // hash of the token with which a person has approved
	Session  string `json:"session,omitempty"`  // that it was exchanged for

	// Of a program that gets the code by a redirect.
	Redirect  string `json:"redirect,omitempty"`
	Challenge string `json:"challenge,omitempty"`

	// Of a device.
	UserCode string `json:"user_code,omitempty"`
	Address  string `json:"address,omitempty"`
	Interval int64  `json:"interval,omitempty"` // milliseconds
	Polled   int64  `json:"polled,omitempty"`   // Unix milliseconds
}

// A Device is a program that waits for a person to confirm its user code.
type Device struct {
	Code     string // secret of the program; only StartDevice returns it
	UserCode string
	Address  string // of the network, from which the program has asked
	Created  time.Time
	Expires  time.Time
	Interval time.Duration // between its polls
}

func loginKey(hash string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindPersonLogin, ID: hash}
}

// CheckRedirect returns an error unless a program on the person's own computer listens at a URL: a literal address of
// the loopback interface, since a name may resolve to another machine.
func CheckRedirect(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("the address to return to is not a URL")
	}
	at, err := netip.ParseAddrPort(u.Host)
	if err != nil || !at.Addr().IsLoopback() || at.Addr().Is4In6() || at.Addr().Zone() != "" || at.Port() == 0 ||
		u.String() != "http://"+at.String()+"/callback" || raw != u.String() {
		return errors.New("the address to return to is not http://127.0.0.1:PORT/callback")
	}
	return nil
}

// CheckChallenge returns an error unless a text can be the SHA-256 of a verifier of PKCE.
func CheckChallenge(challenge string) error {
	if raw, err := base64.RawURLEncoding.DecodeString(challenge); err != nil || len(raw) != sha256.Size {
		return errors.New("the program has sent no code challenge of PKCE (S256)")
	}
	return nil
}

// approver returns the token of a person who may sign in a program.
func (s *Service) approver(ctx context.Context, secret string) (*record, *Person, error) {
	r, err := s.token(ctx, hashOf(secret))
	if err == nil && s.opts.Now().Unix() >= r.Expires {
		err = store.ErrNotFound
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, ErrNoPerson
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := s.Get(ctx, r.Person)
	if err != nil {
		return nil, nil, err
	}
	if s.Permissions(p, r.Project) == 0 {
		return nil, nil, ErrNoPerson
	}
	return r, p, nil
}

// Authorize returns a code which the program that listens at redirect exchanges for a session of the person with a
// token, in the token's project.
func (s *Service) Authorize(ctx context.Context, token, redirect, challenge string) (code string, err error) {
	if err := errors.Join(CheckRedirect(redirect), CheckChallenge(challenge)); err != nil {
		return "", err
	}
	r, _, err := s.approver(ctx, token)
	if err != nil {
		return "", err
	}
	if _, err := s.sweepLogins(ctx); err != nil {
		return "", err
	}
	code = rand.Text() + rand.Text()
	return code, s.saveLogin(ctx, &login{Hash: hashOf(code), State: stateApproved, Approver: r.Hash, Redirect: redirect,
		Challenge: challenge}, codeLife)
}

// StartDevice returns the codes of a program without a browser. address is where it asks from.
func (s *Service) StartDevice(ctx context.Context, address string) (*Device, error) {
	waiting, err := s.sweepLogins(ctx)
	if err != nil {
		return nil, err
	}
	all, own := 0, 0
	for _, l := range waiting {
		if l.UserCode != "" {
			all++
			if l.Address == address {
				own++
			}
		}
	}
	if all >= maxDevices || own >= maxDevicesAddress {
		return nil, ErrTooMany
	}
	code := rand.Text() + rand.Text()
	l := &login{Hash: hashOf(code), UserCode: newUserCode(), Address: address, Interval: interval.Milliseconds()}
	if err := s.saveLogin(ctx, l, deviceLife); err != nil {
		return nil, err
	}
	d := l.device()
	d.Code = code
	return d, nil
}

func (l *login) device() *Device {
	return &Device{UserCode: l.UserCode, Address: l.Address, Created: time.Unix(l.Created, 0),
		Expires: time.Unix(l.Expires, 0), Interval: time.Duration(l.Interval) * time.Millisecond}
}

// letters of user codes: no vowels, which would make words, and none that look like another.
const letters = "BCDFGHJKLMNPQRSTVWXZ"

// newUserCode returns a random user code, such as BCDF-GHJK: one of 20^8.
func newUserCode() string {
	var code strings.Builder
	for code.Len() < 9 {
		if code.Len() == 4 {
			code.WriteByte('-')
		}
		raw := make([]byte, 1)
		rand.Read(raw) // never fails
		if int(raw[0]) < 256/len(letters)*len(letters) {
			code.WriteByte(letters[int(raw[0])%len(letters)])
		}
	}
	return code.String()
}

// userCode returns a user code as it is stored, from what a person has entered.
func userCode(entered string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToUpper(strings.TrimSpace(entered)))
	if len(clean) != 8 {
		return ""
	}
	return clean[:4] + "-" + clean[4:]
}

// FindDevice returns the device with a user code, for the person with a token. It counts wrong codes.
func (s *Service) FindDevice(ctx context.Context, token, entered string) (*Device, error) {
	l, _, err := s.findDevice(ctx, token, entered)
	if err != nil {
		return nil, err
	}
	return l.device(), nil
}

func (s *Service) findDevice(ctx context.Context, token, entered string) (*login, *record, error) {
	r, p, err := s.approver(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	now := s.opts.Now()
	if !s.guesses.allow(p.ID, now) {
		return nil, nil, ErrGuesses
	}
	waiting, err := all[login](ctx, s.opts.Objects, store.KindPersonLogin)
	if err != nil {
		return nil, nil, err
	}
	if code := userCode(entered); code != "" {
		for _, l := range waiting {
			if l.State == stateWaiting && now.Unix() < l.Expires &&
				subtle.ConstantTimeCompare([]byte(l.UserCode), []byte(code)) == 1 {
				return l, r, nil
			}
		}
	}
	s.guesses.wrong(p.ID, now)
	return nil, nil, ErrUserCode
}

// AnswerDevice lets the device with a user code act for the person with a token, in the token's project, or refuses
// it.
func (s *Service) AnswerDevice(ctx context.Context, token, entered string, approve bool) error {
	found, r, err := s.findDevice(ctx, token, entered)
	if err != nil {
		return err
	}
	_, err = s.changeLogin(ctx, found.Hash, func(l *login) error {
		if l.State != stateWaiting {
			return ErrUserCode
		}
		if l.State = stateDenied; approve {
			l.State, l.Approver = stateApproved, r.Hash
		}
		return nil
	})
	return err
}

// PollDevice exchanges a device code for a session. Until a person has confirmed, the error is ErrPending, or
// ErrSlowDown for a device that polls too often.
func (s *Service) PollDevice(ctx context.Context, code string) (*Session, error) {
	now := s.opts.Now()
	var refused error
	return s.redeem(ctx, code, func(l *login) error {
		switch {
		case l.UserCode == "":
			return ErrInvalidGrant
		case l.State == stateDenied:
			return ErrDenied
		case l.State != stateWaiting:
			return nil
		}
		refused = ErrPending
		if l.Polled != 0 && now.UnixMilli()-l.Polled < l.Interval {
			refused = ErrSlowDown
			l.Interval += interval.Milliseconds()
		}
		l.Polled = now.UnixMilli()
		return nil
	}, func() error { return refused })
}

// Exchange exchanges an authorization code for a session. Whatever the answer, the code is used.
func (s *Service) Exchange(ctx context.Context, code, redirect, verifier string) (*Session, error) {
	var refused error
	return s.redeem(ctx, code, func(l *login) error {
		if l.UserCode != "" {
			return ErrInvalidGrant
		}
		sum := sha256.Sum256([]byte(verifier))
		challenge := base64.RawURLEncoding.EncodeToString(sum[:])
		if subtle.ConstantTimeCompare([]byte(challenge), []byte(l.Challenge)) != 1 || redirect != l.Redirect {
			refused = ErrInvalidGrant
		}
		return nil
	}, func() error { return refused })
}

// redeem exchanges a code, once. check may change the login; refused returns why there is no session nevertheless.
func (s *Service) redeem(ctx context.Context, code string, check func(*login) error, refused func() error) (*Session,
	error) {
	session, before := berth.NewID("sess_"), ""
	l, err := s.changeLogin(ctx, hashOf(code), func(l *login) error {
		if s.opts.Now().Unix() >= l.Expires {
			return ErrExpired
		}
		if err := check(l); err != nil {
			return err
		}
		if before = l.State; before == stateApproved {
			l.State, l.Session = stateUsed, session
		}
		return nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, ErrInvalidGrant
	case err != nil:
		return nil, err
	case before == stateUsed: // somebody has a copy of the code: RFC 6749, section 4.1.2
		return nil, errors.Join(ErrInvalidGrant, s.endSession(ctx, l.Session))
	case refused() != nil:
		return nil, refused()
	}
	r, err := s.token(ctx, l.Approver)
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrDenied // signed out or deactivated
	}
	if err != nil {
		return nil, err
	}
	p, err := s.Get(ctx, r.Person)
	if err != nil {
		return nil, err
	}
	if s.Permissions(p, r.Project) == 0 || s.opts.Now().Unix() >= r.Expires {
		return nil, ErrDenied
	}
	by := "berth login --browser"
	if l.UserCode != "" {
		by = "berth login --device"
	}
	return s.start(ctx, p, session, by, []berth.ProjectID{r.Project})
}

func (s *Service) saveLogin(ctx context.Context, l *login, life time.Duration) error {
	now := s.opts.Now()
	l.Created, l.Expires = now.Unix(), now.Add(life).Unix()
	body, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode login: %w", err)
	}
	err = s.opts.Objects.CreateObjects(ctx, house, &store.Object{ObjectKey: loginKey(l.Hash), CreatedAt: l.Created,
		ExpiresAt: l.Expires, Body: body})
	if err != nil {
		return fmt.Errorf("save login: %w", err)
	}
	return nil
}

func (s *Service) changeLogin(ctx context.Context, hash string, edit func(*login) error) (*login, error) {
	return change(ctx, s.opts.Objects, loginKey(hash), edit)
}

// sweepLogins deletes expired logins and returns the others.
func (s *Service) sweepLogins(ctx context.Context) (left []*login, err error) {
	found, err := all[login](ctx, s.opts.Objects, store.KindPersonLogin)
	if err != nil {
		return nil, err
	}
	for _, l := range found {
		if s.opts.Now().Unix() < l.Expires {
			left = append(left, l)
			continue
		}
		err := s.opts.Objects.DeleteObject(ctx, house, loginKey(l.Hash))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("delete login: %w", err)
		}
	}
	return left, nil
}

// guesses counts the wrong user codes of persons. The zero value is ready to use.
type guesses struct {
	mu   sync.Mutex
	made map[string][]time.Time
}

// allow reports whether a person may enter a code.
func (g *guesses) allow(id string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	recent := g.made[id]
	for len(recent) > 0 && now.Sub(recent[0]) >= deviceLife {
		recent = recent[1:]
	}
	if len(recent) == 0 {
		delete(g.made, id)
		return true
	}
	g.made[id] = recent
	return len(recent) < maxGuesses
}

func (g *guesses) wrong(id string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.made == nil {
		g.made = map[string][]time.Time{}
	}
	g.made[id] = append(g.made[id], now)
}
