package preview

import (
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// A port has a host of its own below a domain: PORT-CONTAINER.DOMAIN, as E2B's clients
// make them. Names of hosts have no underscore and no case: of a container's id,
// which has one and is lower case, it becomes a hyphen. With it is understood as well.
var label = regexp.MustCompile(`^([1-9][0-9]{0,4})-cntr[-_]([0-9a-f]{48})$`)

// Host returns the host under which a port is shown below a domain; "" if the id is
// not one that a host can have.
func Host(container berth.ContainerID, port int, domain string) string {
	name := strconv.Itoa(port) + "-" + strings.Replace(string(container), "_", "-", 1)
	if !label.MatchString(name) {
		return ""
	}
	return name + "." + domain
}

// ParseHost reads the Host of a request. below says that it is below the domain, and so
// no place for anything else; the port is 0 if it names none.
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

// The names of what permits a browser to see a port under its host.
const (
	TokenParam   = "berth_preview"        // in the query of the first visit
	plainCookie  = "berth_preview"        // from then on
	secureCookie = "__Host-berth_preview" // over HTTPS, where no other host can set one of that name
)

// PermissionCookie returns the cookie that keeps a link, for the host that sets it alone.
func PermissionCookie(word string, seconds int64, secure bool) *http.Cookie {
	c := &http.Cookie{Name: plainCookie, Value: word, Path: "/", MaxAge: int(max(1, seconds)), HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if secure {
		c.Name, c.Secure = secureCookie, true
	}
	return c
}

// Permissions returns the links that a request's cookies keep. Others on the domain can
// have set some, so that there may be several.
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

// OwnPage reports whether a request comes of the host itself, or of a person who goes
// there. What a cookie permits, the pages of others must not do with it: those of
// other sandboxes on the domain are of the same site, and browsers send it for them.
func OwnPage(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	visits := r.Method == http.MethodGet || r.Method == http.MethodHead
	return visits && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// Visits reports whether a request is a browser's that shows a page.
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
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		if value, ok := strings.CutPrefix(pair, TokenParam+"="); ok {
			word = value
		} else if pair != "" {
			kept = append(kept, pair)
		}
	}
	if word == "" {
		return "", query
	}
	return word, strings.Join(kept, "&")
}
