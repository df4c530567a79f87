package preview

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// maxCookies is the maximum number of cookies that one answer may set.
const maxCookies = 32

// cookiePrefix returns the prefix of the names under which a browser stores the cookies of a
// target. Browsers do not distinguish ports and containers: without the prefix, they would
// send a sandbox the cookies of others on the same host.
func cookiePrefix(t Target) string {
	sum := sha256.Sum256([]byte(string(t.Container) + "\x00" + strconv.Itoa(t.Port)))
	return "berth_" + hex.EncodeToString(sum[:6]) + "_"
}

// ownCookies returns the Cookie header with the cookies that the target itself has set.
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

// setCookies sets the cookies of an answer for the target only.
func setCookies(h http.Header, cookies []*http.Cookie, t Target) {
	for i, c := range cookies {
		if i == maxCookies {
			return
		}
		path := "/"
		if strings.HasPrefix(c.Path, "/") {
			path = c.Path
		}
		own := http.Cookie{Name: cookiePrefix(t) + c.Name, Value: c.Value, Quoted: c.Quoted, Path: t.Prefix + path,
			Expires: c.Expires, MaxAge: c.MaxAge, HttpOnly: c.HttpOnly, SameSite: c.SameSite}
		if c.SameSite == http.SameSiteNoneMode {
			own.Secure = true // browsers refuse others
		}
		if s := own.String(); s != "" {
			h.Add("Set-Cookie", s)
		}
	}
}
