package console

import (
	"bytes"
	"crypto/rand"
	"net/http/httptest"
	"testing"
	"time"
)

func keyOf(key string) accounts { return accounts{}.using(account{Key: key}) }

func TestSessions(t *testing.T) {
	var s sessions
	now := time.Now()
	first, second := s.start(keyOf("sk-first"), now), s.start(keyOf("sk-second"), now)
	for token, want := range map[string]string{first: "sk-first", second: "sk-second", "": "", "other": ""} {
		l, ok := s.find(token, now)
		if ok != (want != "") || ok && l.All[l.Used].Key != want {
			t.Errorf("%q: got %v, %v, want %q", token, l, ok, want)
		}
	}
	for _, held := range s.held {
		if bytes.Contains(held.sealed, []byte("sk-")) {
			t.Error("a key is in memory as it is")
		}
	}
	s.end(first)
	if _, ok := s.find(first, now); ok {
		t.Error("a session remains after its end")
	}
	if _, ok := s.find(second, now.Add(sessionLife+time.Second)); ok {
		t.Error("a session does not expire")
	}
	s.start(keyOf("sk"), now.Add(sessionLife+time.Second))
	if len(s.held) != 1 {
		t.Errorf("%d sessions are held, want the one that has not expired", len(s.held))
	}
}

func TestSessionsBounded(t *testing.T) {
	var s sessions
	now := time.Now()
	oldest, second := s.start(keyOf("sk-oldest"), now), s.start(keyOf("sk-second"), now.Add(time.Second))
	for i := range maxSessions - 1 {
		s.start(keyOf("sk"), now.Add(time.Minute+time.Duration(i)*time.Millisecond))
	}
	if _, ok := s.find(oldest, now); ok || len(s.held) != maxSessions {
		t.Errorf("%d sessions are held, with the oldest: %v", len(s.held), ok)
	}
	if _, ok := s.find(second, now); !ok {
		t.Error("another than the oldest has ended")
	}
}

func TestCookie(t *testing.T) {
	r := httptest.NewRequest("POST", "http://berth.example/console/sign-in", nil)
	if got, want := cookie(r,
		"t").String(), "berth_console=t; Path=/console; Max-Age=43200; HttpOnly; SameSite=Strict"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r.Header.Set("X-Forwarded-Proto", "https")
	if got, want := cookie(r,
		"").String(), "__Host-berth_console=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestAccounts: a session has several keys and uses the one that was added last.
func TestAccounts(t *testing.T) {
	var s sessions
	now := time.Now()
	token := s.start(keyOf("sk-aaaa"), now)
	l, _ := s.find(token, now)
	s.change(token, l.using(account{Key: "sk-bbbb", Admin: true}))
	l, ok := s.find(token, now)
	if !ok || len(l.All) != 2 || l.Used != 1 || l.All[1].Label() != "Admin key …bbbb" ||
		l.All[0].Label() != "Key …aaaa" {
		t.Errorf("got %+v, %v", l, ok)
	}
	if again := l.using(account{Key: "sk-aaaa"}); len(again.All) != 2 || again.All[again.Used].Key != "sk-aaaa" {
		t.Errorf("a key that is added again: got %+v", again)
	}
	for range 2 * maxAccounts {
		l = l.using(account{Key: rand.Text()})
	}
	if len(l.All) != maxAccounts || l.Used != maxAccounts-1 {
		t.Errorf("got %d accounts, using %d", len(l.All), l.Used)
	}
	s.change("unknown", l)
	if _, ok := s.find("unknown", now); ok || len(s.held) != 1 {
		t.Error("a change has started a session")
	}
}
