package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	sessionLife = 12 * time.Hour
	maxSessions = 1000 // a further one ends the oldest
)

// Names of the session's cookie. A page on another host of the same domain can set the plain
// one, but not the one over HTTPS: its prefix binds it to this host.
const (
	plainCookie  = "berth_console"
	secureCookie = "__Host-berth_console"
)

// maxAccounts is the number of keys of a session.
const maxAccounts = 20

// An account is a key of a session.
type account struct {
	Key     string
	Admin   bool   // the key is an admin key
	Project string // name of the key's project; "" if it is not known
	Person  string // whose token the key is; "" for a key
}

// Name returns what the key is for.
func (a account) Name() string {
	switch {
	case a.Admin:
		return "Operator"
	case a.Project != "":
		return a.Project
	}
	return "Project"
}

// Label returns what users see of the key.
func (a account) Label() string {
	if a.Person != "" {
		return a.Person + " · " + a.Name()
	}
	kind := "Key"
	if a.Admin {
		kind = "Admin key"
	}
	return kind + " …" + a.Key[max(0, len(a.Key)-4):]
}

// accounts are the keys that a user has signed in with. One of them is used.
type accounts struct {
	All  []account
	Used int
}

// Current returns the account that is used.
func (l accounts) Current() account { return l.All[l.Used] }

// using returns the accounts with a, which is used. It ends the oldest if there are too many.
func (l accounts) using(a account) accounts {
	all := slices.DeleteFunc(slices.Clone(l.All), func(other account) bool { return other.Key == a.Key })
	all = append(all, a)
	all = all[max(0, len(all)-maxAccounts):]
	return accounts{all, len(all) - 1}
}

// A sessions holds the API keys of the users that are signed in, in memory. Keys are sealed
// with the token of their session, which only the browser has. The zero value is ready to
// use. It is safe for concurrent use.
type sessions struct {
	mu   sync.Mutex
	held map[[32]byte]session // by the hash of the token
}

type session struct {
	sealed  []byte
	expires time.Time
}

// start stores accounts and returns the token with which find returns them.
func (s *sessions) start(l accounts, now time.Time) (token string) {
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
	s.held[id] = session{l.seal(box), now.Add(sessionLife)}
	return token
}

// change replaces the accounts of a session that has not ended.
func (s *sessions) change(token string, l accounts) {
	id, box := open(token)
	sealed := l.seal(box)
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, ok := s.held[id]; ok {
		held.sealed = sealed
		s.held[id] = held
	}
}

func (l accounts) seal(box cipher.AEAD) []byte {
	raw, err := json.Marshal(l)
	if err != nil {
		panic(err) // it has strings, numbers and booleans
	}
	return box.Seal(nil, nil, raw, nil)
}

// find returns the accounts of a session.
func (s *sessions) find(token string, now time.Time) (l accounts, ok bool) {
	id, box := open(token)
	s.mu.Lock()
	held, ok := s.held[id]
	s.mu.Unlock()
	if !ok || held.expires.Before(now) {
		return accounts{}, false
	}
	clear, err := box.Open(nil, nil, held.sealed, nil)
	if err != nil || json.Unmarshal(clear, &l) != nil || l.Used < 0 || l.Used >= len(l.All) {
		return accounts{}, false
	}
	return l, true
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

// has reports whether a key is one of the accounts.
func (l accounts) has(key string) bool {
	found := 0
	for _, a := range l.All {
		found |= subtle.ConstantTimeCompare([]byte(a.Key), []byte(key))
	}
	return found == 1
}

// overHTTPS reports whether the browser uses HTTPS, itself or through a proxy.
func overHTTPS(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// cookie returns the cookie of a session; an empty token deletes it. A browser sends it with
// requests of this host's own pages only, and shows it to no script.
func cookie(r *http.Request, token string) *http.Cookie {
	c := &http.Cookie{Name: plainCookie, Value: token, Path: strings.TrimSuffix(Path, "/"), HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		MaxAge:   int(sessionLife.Seconds())}
	if overHTTPS(r) {
		c.Name, c.Path, c.Secure = secureCookie, "/", true
	}
	if token == "" {
		c.MaxAge = -1
	}
	return c
}

// tokenOf returns the token of a request's session; "" without one. Two cookies of the name
// are an error: a page on another host of the domain has set one of them, and which one the
// browser sends first depends on their paths.
func tokenOf(r *http.Request) (string, error) {
	name := plainCookie
	if overHTTPS(r) {
		name = secureCookie
	}
	found := r.CookiesNamed(name)
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0].Value, nil
	}
	return "", &failure{http.StatusBadRequest,
		"The browser has sent two sessions of this console, so another page has set one of them. " +
			"Delete the cookies of this site, then sign in again."}
}
