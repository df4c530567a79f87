package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	sessionLife = 12 * time.Hour
	maxSessions = 1000 // a further one ends the oldest
	cookieName  = "berth_console"
)

// A sessions holds the API keys of the users that are signed in, in memory. A key is sealed
// with the token of its session, which only the browser has. The zero value is ready to
// use. It is safe for concurrent use.
type sessions struct {
	mu   sync.Mutex
	held map[[32]byte]session // by the hash of the token
}

type session struct {
	sealed  []byte
	expires time.Time
}

// start stores a key and returns the token with which find returns it.
func (s *sessions) start(key string, now time.Time) (token string) {
	token = rand.Text()
	id, box := open(token)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[[32]byte]session{}
	}
	var oldest [32]byte
	for other, held := range s.held {
		if held.expires.Before(now) {
			delete(s.held, other)
		} else if first, ok := s.held[oldest]; !ok || held.expires.Before(first.expires) {
			oldest = other
		}
	}
	if len(s.held) >= maxSessions {
		delete(s.held, oldest)
	}
	s.held[id] = session{box.Seal(nil, nil, []byte(key), nil), now.Add(sessionLife)}
	return token
}

// find returns the key of a session.
func (s *sessions) find(token string, now time.Time) (key string, ok bool) {
	id, box := open(token)
	s.mu.Lock()
	held, ok := s.held[id]
	s.mu.Unlock()
	if !ok || held.expires.Before(now) {
		return "", false
	}
	clear, err := box.Open(nil, nil, held.sealed, nil)
	return string(clear), err == nil
}

// end deletes a session.
func (s *sessions) end(token string) {
	id, _ := open(token)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, id)
}

// open returns the id of a session, and what seals its key. Neither reveals the token or
// the other.
func open(token string) (id [32]byte, box cipher.AEAD) {
	key := sha256.Sum256([]byte("seal " + token))
	block, err := aes.NewCipher(key[:])
	if err == nil {
		box, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // 32 bytes are a key, and AES has GCM's block size
	}
	return sha256.Sum256([]byte("id " + token)), box
}

// cookie returns the cookie of a session; an empty token deletes it. A browser sends it with
// requests of the console's own pages only, and shows it to no script.
func cookie(r *http.Request, token string) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: token, Path: strings.TrimSuffix(Path, "/"), HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", MaxAge: int(sessionLife.Seconds())}
	if token == "" {
		c.MaxAge = -1
	}
	return c
}
