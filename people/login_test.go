package people

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const redirect = "http://127.0.0.1:7777/callback"

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// signedIn returns the token of a person of the group red.
func signedIn(t *testing.T, s *Service, subject string) (token string, p *Person) {
	t.Helper()
	session, err := s.SignIn(t.Context(), Claims{Issuer: "https://a", Subject: subject, Groups: []string{"red"}})
	if err != nil {
		t.Fatal(err)
	}
	return session.Tokens[0].Secret, session.Person
}

// works reports whether a session's token is a key.
func works(t *testing.T, keys store.Keys, s *Session) bool {
	t.Helper()
	_, err := keys.KeyByHash(t.Context(), sha256.Sum256([]byte(s.Tokens[0].Secret)))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// A code is worth a session once, to the program that has the verifier and listens where the code was sent.
func TestAuthorizationCode(t *testing.T) {
	s, keys, now := newService(t)
	ctx := t.Context()
	token, _ := signedIn(t, s, "1")
	authorize := func() string {
		code, err := s.Authorize(ctx, token, redirect, challengeOf("the verifier"))
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	for name, attack := range map[string]func(code string) (*Session, error){
		"no verifier": func(code string) (*Session, error) { return s.Exchange(ctx, code, redirect, "") },
		"a verifier of another": func(code string) (*Session, error) {
			return s.Exchange(ctx, code, redirect, "another verifier")
		},
		"the challenge for the verifier": func(code string) (*Session, error) {
			return s.Exchange(ctx, code, redirect, challengeOf("the verifier"))
		},
		"another program": func(code string) (*Session, error) {
			return s.Exchange(ctx, code, "http://127.0.0.1:7778/callback", "the verifier")
		},
		"a hash for the code": func(code string) (*Session, error) {
			return s.Exchange(ctx, hashOf(code), redirect, "the verifier")
		},
		"as a device code": func(code string) (*Session, error) { return s.PollDevice(ctx, code) },
		"the token of the console": func(string) (*Session, error) {
			return s.Exchange(ctx, token, redirect, "the verifier")
		},
		"late": func(code string) (*Session, error) {
			*now = now.Add(codeLife)
			return s.Exchange(ctx, code, redirect, "the verifier")
		},
	} {
		code := authorize()
		if session, err := attack(code); session != nil || !errors.Is(err, ErrInvalidGrant) && !errors.Is(err, ErrExpired) {
			t.Errorf("%s: got %v, %v", name, session, err)
		}
		if _, err := keys.KeyByHash(ctx, sha256.Sum256([]byte(code))); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: the code is a key: %v", name, err)
		}
	}
	code := authorize()
	if _, err := s.Exchange(ctx, code, redirect, "guessed"); err == nil {
		t.Fatal("a guessed verifier was accepted")
	}
	if _, err := s.Exchange(ctx, code, redirect, "the verifier"); err == nil {
		t.Error("a code was tried twice")
	}

	code = authorize()
	session, err := s.Exchange(ctx, code, redirect, "the verifier")
	if err != nil || !works(t, keys, session) || session.Tokens[0].Project != "proj_red" || len(session.Tokens) != 1 {
		t.Fatalf("got %+v, %v", session, err)
	}
	if _, err := s.Exchange(ctx, code, redirect, "the verifier"); err == nil || works(t, keys, session) {
		t.Error("a second use of the code has not ended the session of the first")
	}

	for _, to := range []string{"http://localhost:7777/callback", "https://127.0.0.1:7777/callback",
		"http://127.0.0.1/callback", "http://127.0.0.1:0/callback", "http://evil.example:7777/callback",
		"http://127.0.0.1:7777@evil.example/callback", "http://127.0.0.1:7777/callback?x=y",
		"http://127.0.0.1:7777/callback#x", "http://127.0.0.1:7777/other", "http://10.0.0.1:7777/callback",
		"http://127.0.0.1:7777/callback/../x", "javascript:alert(1)", "http://[::ffff:127.0.0.1]:7777/callback",
		"http://127.0.0.1:07777/callback", "//127.0.0.1:7777/callback", ""} {
		if CheckRedirect(to) == nil {
			t.Errorf("returns to %q", to)
		}
		if _, err := s.Authorize(ctx, token, to, challengeOf("x")); err == nil {
			t.Errorf("authorizes %q", to)
		}
	}
	for _, challenge := range []string{"", "plain", strings.Repeat("a", 44), challengeOf("x") + "="} {
		if _, err := s.Authorize(ctx, token, redirect, challenge); err == nil {
			t.Errorf("authorizes without a hash: %q", challenge)
		}
	}
	if err := CheckRedirect("http://[::1]:7777/callback"); err != nil {
		t.Error(err)
	}
}

// What ends a person's access before the program fetches its session, ends the login too.
func TestLoginEndsWithAccess(t *testing.T) {
	for name, end := range map[string]func(s *Service, token string, p *Person) error{
		"sign-out": func(s *Service, token string, _ *Person) error { return s.SignOut(t.Context(), token) },
		"operator": func(s *Service, _ string, p *Person) error {
			_, err := s.EndSessions(t.Context(), p.ID)
			return err
		},
		"deactivation": func(s *Service, _ string, p *Person) error { return s.Deactivate(t.Context(), p.ID) },
		"groups": func(s *Service, _ string, _ *Person) error {
			_, err := s.SignIn(t.Context(), Claims{Issuer: "https://a", Subject: "1", Groups: []string{"gone"}})
			if errors.Is(err, ErrNoAccess) {
				err = nil
			}
			return err
		},
	} {
		s, _, _ := newService(t)
		token, p := signedIn(t, s, "1")
		code, err := s.Authorize(t.Context(), token, redirect, challengeOf("v"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.StartDevice(t.Context(), "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AnswerDevice(t.Context(), token, d.UserCode, true); err != nil {
			t.Fatal(err)
		}
		if err := end(s, token, p); err != nil {
			t.Fatal(err)
		}
		if session, err := s.Exchange(t.Context(), code, redirect, "v"); !errors.Is(err, ErrDenied) {
			t.Errorf("%s: the code gave %v, %v", name, session, err)
		}
		if session, err := s.PollDevice(t.Context(), d.Code); !errors.Is(err, ErrDenied) {
			t.Errorf("%s: the device code gave %v, %v", name, session, err)
		}
		if _, err := s.Authorize(t.Context(), token, redirect, challengeOf("v")); !errors.Is(err, ErrNoPerson) {
			t.Errorf("%s: the token authorizes: %v", name, err)
		}
	}
}

// A device waits for its person, no faster than it may, and gets one session.
func TestDevice(t *testing.T) {
	s, keys, now := newService(t)
	ctx := t.Context()
	token, person := signedIn(t, s, "1")
	d, err := s.StartDevice(ctx, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	poll := func(after time.Duration, want error) *Session {
		t.Helper()
		*now = now.Add(after)
		session, err := s.PollDevice(ctx, d.Code)
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		return session
	}
	poll(0, ErrPending)
	poll(time.Second, ErrSlowDown)    // 10 seconds now
	poll(6*time.Second, ErrSlowDown)  // 15
	poll(15*time.Second, ErrPending)  // as told
	poll(14*time.Second, ErrSlowDown) // 20
	for _, code := range []string{d.UserCode, hashOf(d.Code), "", d.Code + "x", token} {
		if _, err := s.PollDevice(ctx, code); !errors.Is(err, ErrInvalidGrant) {
			t.Errorf("polls with %q: %v", code, err)
		}
	}
	if _, err := s.Exchange(ctx, d.Code, "", ""); !errors.Is(err, ErrInvalidGrant) {
		t.Errorf("a device code is an authorization code: %v", err)
	}
	for _, entered := range []string{strings.ToLower(d.UserCode), strings.ReplaceAll(d.UserCode, "-", ""),
		" " + strings.ReplaceAll(d.UserCode, "-", " ")} {
		if found, err := s.FindDevice(ctx, token, entered); err != nil || found.Code != "" || found.Address != "192.0.2.1" {
			t.Errorf("%q: got %+v, %v", entered, found, err)
		}
	}
	if err := s.AnswerDevice(ctx, "sk-berth-person-none", d.UserCode, true); !errors.Is(err, ErrNoPerson) {
		t.Errorf("somebody who has not signed in answers: %v", err)
	}
	if err := s.AnswerDevice(ctx, token, d.UserCode, true); err != nil {
		t.Fatal(err)
	}
	other, _ := signedIn(t, s, "2")
	for _, approve := range []bool{true, false} {
		if err := s.AnswerDevice(ctx, other, d.UserCode, approve); !errors.Is(err, ErrUserCode) {
			t.Errorf("a code was answered twice: %v", err)
		}
	}
	session := poll(20*time.Second, nil)
	if session == nil || session.Person.ID != person.ID || !works(t, keys, session) {
		t.Fatalf("got %+v", session)
	}
	poll(time.Minute, ErrInvalidGrant)
	if works(t, keys, session) {
		t.Error("a copied device code was used, and the session continues")
	}

	if d, err = s.StartDevice(ctx, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	if err := s.AnswerDevice(ctx, token, d.UserCode, false); err != nil {
		t.Fatal(err)
	}
	poll(time.Minute, ErrDenied)
	if d, err = s.StartDevice(ctx, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	poll(deviceLife, ErrExpired)
	if _, err := s.FindDevice(ctx, token, d.UserCode); !errors.Is(err, ErrUserCode) {
		t.Errorf("an expired code: %v", err)
	}
}

// User codes cannot be tried, and device codes cannot fill the store.
func TestDeviceBounds(t *testing.T) {
	s, _, now := newService(t)
	ctx := t.Context()
	token, _ := signedIn(t, s, "1")
	other, _ := signedIn(t, s, "2")
	d, err := s.StartDevice(ctx, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxGuesses {
		if _, err := s.FindDevice(ctx, token, fmt.Sprintf("BBBB-BBB%c", letters[i])); !errors.Is(err, ErrUserCode) {
			t.Fatalf("guess %d: %v", i, err)
		}
	}
	if _, err := s.FindDevice(ctx, token, d.UserCode); !errors.Is(err, ErrGuesses) {
		t.Errorf("after %d guesses: %v", maxGuesses, err)
	}
	if err := s.AnswerDevice(ctx, token, d.UserCode, true); !errors.Is(err, ErrGuesses) {
		t.Errorf("after %d guesses, an answer: %v", maxGuesses, err)
	}
	if _, err := s.FindDevice(ctx, other, d.UserCode); err != nil {
		t.Errorf("another person: %v", err)
	}
	*now = now.Add(deviceLife - time.Second)
	if d, err = s.StartDevice(ctx, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Second)
	if _, err := s.FindDevice(ctx, token, d.UserCode); err != nil {
		t.Errorf("after a while: %v", err)
	}

	for i := 1; i < maxDevicesAddress; i++ {
		if _, err := s.StartDevice(ctx, "192.0.2.1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.StartDevice(ctx, "192.0.2.1"); !errors.Is(err, ErrTooMany) {
		t.Errorf("one address: %v", err)
	}
	if _, err := s.StartDevice(ctx, "192.0.2.2"); err != nil {
		t.Errorf("another address: %v", err)
	}
	*now = now.Add(deviceLife)
	if _, err := s.StartDevice(ctx, "192.0.2.1"); err != nil {
		t.Errorf("after they have expired: %v", err)
	}
	left, err := all[login](ctx, s.opts.Objects, store.KindPersonLogin)
	if err != nil || len(left) != 1 {
		t.Errorf("%d logins are left, %v", len(left), err)
	}
}

// User codes have no letter that makes words or looks like another, and are not alike.
func TestUserCodes(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		code := newUserCode()
		if len(code) != 9 || code[4] != '-' || userCode(code) != code || strings.ContainsAny(code, "AEIOUY0123456789") ||
			seen[code] {
			t.Fatalf("got %q", code)
		}
		seen[code] = true
	}
}

// A login acts in the project of the token that has approved it, and in no other.
func TestLoginProject(t *testing.T) {
	s, keys, _ := newService(t)
	session, err := s.SignIn(t.Context(), Claims{Issuer: "https://a", Subject: "1", Groups: []string{"red", "ops"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range session.Tokens {
		code, err := s.Authorize(t.Context(), token.Secret, redirect, challengeOf("v"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Exchange(t.Context(), code, redirect, "v")
		if err != nil || len(got.Tokens) != 1 || got.Tokens[0].Project != token.Project {
			t.Fatalf("got %+v, %v", got, err)
		}
		key, err := keys.KeyByHash(t.Context(), sha256.Sum256([]byte(got.Tokens[0].Secret)))
		if err != nil || key.Project != token.Project || key.Caller().Permissions != berth.AllPermissions(token.Project) {
			t.Errorf("got %+v, %v", key, err)
		}
	}
}
