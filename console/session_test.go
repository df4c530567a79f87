package console

import (
	"bytes"
	"net/http/httptest"
	"testing"
	"time"
)

func TestSessions(t *testing.T) {
	var s sessions
	now := time.Now()
	first, second := s.start("sk-first", now), s.start("sk-second", now)
	for token, want := range map[string]string{first: "sk-first", second: "sk-second", "": "", "other": ""} {
		if key, ok := s.find(token, now); key != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", token, key, ok, want)
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
	s.start("sk", now.Add(sessionLife+time.Second))
	if len(s.held) != 1 {
		t.Errorf("%d sessions are held, want the one that has not expired", len(s.held))
	}
}

func TestSessionsBounded(t *testing.T) {
	var s sessions
	now := time.Now()
	oldest, second := s.start("sk-oldest", now), s.start("sk-second", now.Add(time.Second))
	for i := range maxSessions - 1 {
		s.start("sk", now.Add(time.Minute+time.Duration(i)*time.Millisecond))
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
	if got, want := cookie(r, "t").String(), "berth_console=t; Path=/console; Max-Age=43200; HttpOnly; SameSite=Strict"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r.Header.Set("X-Forwarded-Proto", "https")
	if got, want := cookie(r, "").String(), "berth_console=; Path=/console; Max-Age=0; HttpOnly; Secure; SameSite=Strict"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
