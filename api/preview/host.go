package preview

import (
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// label matches the first label of a port's host, PORT-CONTAINER.DOMAIN, as E2B's clients
// build it. Host names have no underscore, so that of the container's id becomes a hyphen.
// An underscore is accepted too.
var label = regexp.MustCompile(`^([1-9][0-9]{0,4})-cntr[-_]([0-9a-f]{48})$`)

// Host returns the host name of a port below a domain. It returns "" if the container's id
// cannot be part of a host name.
func Host(container berth.ContainerID, port int, domain string) string {
	name := strconv.Itoa(port) + "-" + strings.Replace(string(container), "_", "-", 1)
	if !label.MatchString(name) {
		return ""
	}
	return name + "." + domain
}

// ParseHost parses the Host header of a request. below is whether the host is below the
// domain, where only ports are served. The port is 0 if the host is not that of a port.
func ParseHost(host, domain string) (container berth.ContainerID, port int, below bool) {
	if domain == "" {
		return "", 0, false
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	name, below := strings.CutSuffix(strings.TrimSuffix(strings.ToLower(host), "."), "."+domain)
	if !below {
		return "", 0, false
	}
	m := label.FindStringSubmatch(name)
	if m == nil {
		return "", 0, true
	}
	port, err := strconv.Atoi(m[1])
	if err != nil || port > 65535 {
		return "", 0, true
	}
	return berth.ContainerID(berth.PrefixContainer + m[2]), port, true
}

// The names of the query parameter and of the cookies with which a browser accesses a port
// under its host.
const (
	TokenParam   = "berth_preview"        // query parameter of the first request
	plainCookie  = "berth_preview"        // cookie for later requests
	secureCookie = "__Host-berth_preview" // cookie over HTTPS; no other host can set this name
)

// PermissionCookie returns a cookie that stores a link for the current host only.
func PermissionCookie(word string, seconds int64, secure bool) *http.Cookie {
	c := &http.Cookie{Name: plainCookie, Value: word, Path: "/", MaxAge: int(max(1, seconds)), HttpOnly: true,
		SameSite: http.SameSiteLaxMode}
	if secure {
		c.Name, c.Secure = secureCookie, true
	}
	return c
}

// Permissions returns the links in a request's cookies. There may be several, because other
// hosts on the domain can set cookies too.
func Permissions(r *http.Request) []string {
	const most = 8
	var words []string
	for _, c := range r.Cookies() {
		if (c.Name == plainCookie || c.Name == secureCookie) && len(words) < most {
			words = append(words, c.Value)
		}
	}
	return words
}

// OwnPage reports whether a request comes from a page of the host itself or is a user's
// navigation to it. Only such requests may use a cookie as permission: browsers also send it
// with requests of other sandboxes' pages, which are on the same site.
func OwnPage(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && !ofHost(origin, r.Host) {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	visits := r.Method == http.MethodGet || r.Method == http.MethodHead
	return visits && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// Visits reports whether a request is a browser's navigation to a page.
func Visits(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != "" {
		return false
	}
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		return mode == "navigate"
	}
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// TakeToken returns the token in a request's query, and the query without it.
func TakeToken(query string) (word, rest string) {
	var others []string
	for pair := range strings.SplitSeq(query, "&") {
		if value, ok := strings.CutPrefix(pair, TokenParam+"="); ok {
			word = value
		} else if pair != "" {
			others = append(others, pair)
		}
	}
	if word == "" {
		return "", query
	}
	return word, strings.Join(others, "&")
}
