package preview

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// maxCookies is how many cookies one answer may set.
const maxCookies = 32

// cookiePrefix is the prefix of the names that a browser has for the cookies of a target.
// A browser knows neither ports nor containers: without the prefix, it would send a sandbox
// the cookies of others on the same host.
func cookiePrefix(t Target) string {
	sum := sha256.Sum256([]byte(string(t.Container) + "\x00" + strconv.Itoa(t.Port)))
	return "berth_" + hex.EncodeToString(sum[:6]) + "_"
}

// ownCookies returns the Cookie header of what the target has set itself.
func ownCookies(r *http.Request, t Target) string {
	prefix := cookiePrefix(t)
	var own []string
	for _, line := range r.Header["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			if pair, ok := strings.CutPrefix(strings.TrimSpace(pair), prefix); ok {
				own = append(own, pair)
			}
		}
	}
	return strings.Join(own, "; ")
}

// setCookies sets the cookies of an answer, for the target alone.
func setCookies(h http.Header, cookies []*http.Cookie, t Target) {
	for i, c := range cookies {
		if i == maxCookies {
			return
		}
		path := "/"
		if strings.HasPrefix(c.Path, "/") {
			path = c.Path
		}
		kept := http.Cookie{Name: cookiePrefix(t) + c.Name, Value: c.Value, Quoted: c.Quoted, Path: t.Prefix + path,
			Expires: c.Expires, MaxAge: c.MaxAge, HttpOnly: c.HttpOnly, SameSite: c.SameSite}
		if c.SameSite == http.SameSiteNoneMode {
			kept.Secure = true // browsers take no other
		}
		if s := kept.String(); s != "" {
			h.Add("Set-Cookie", s)
		}
	}
}
