package preview

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

var hostID = berth.ContainerID("cntr_" + strings.Repeat("0a", 24))

func TestHost(t *testing.T) {
	at := Host(hostID, 8080, "preview.example")
	if want := "8080-cntr-" + strings.Repeat("0a", 24) + ".preview.example"; at != want ||
		len(strings.Split(at, ".")[0]) > 63 {
		t.Errorf("got %s, want %s", at, want)
	}
	if got := Host(hostID, 65535, "d"); len(strings.Split(got, ".")[0]) > 63 {
		t.Errorf("%s is longer than a label may be", got)
	}
	for _, id := range []berth.ContainerID{"", "cntr_", "cntr_x", "cntr_ABC", hostID + ".evil"} {
		if got := Host(id, 80, "d"); got != "" {
			t.Errorf("%q has the host %s", id, got)
		}
	}
	name := strings.TrimSuffix(at, ".preview.example")
	for host, want := range map[string]struct {
		port  int
		below bool
	}{
		at: {8080, true}, at + ":443": {8080, true}, strings.ToUpper(at): {8080, true}, at + ".": {8080, true},
		strings.Replace(at, "-cntr-", "-cntr_", 1): {8080, true}, // as E2B's clients make it
		"preview.example":                          {}, "api.example": {}, "": {}, at + ".evil.example": {},
		name + ".notpreview.example": {},
		"x.preview.example":          {0, true}, "x." + at: {0, true}, "0" + at: {0, true}, "70000" + at[4:]: {0, true},
		at[4:]:                             {0, true},
		strings.Replace(at, "0a", "0g", 1): {0, true},
	} {
		id, port, below := ParseHost(host, "preview.example")
		if port != want.port || below != want.below || (id == hostID) != (port != 0) {
			t.Errorf("%q: got %s, %d, %v, want %v", host, id, port, below, want)
		}
	}
	if _, _, below := ParseHost(at, ""); below {
		t.Error("without a domain there are hosts")
	}
}

func TestTakeToken(t *testing.T) {
	for query, want := range map[string][2]string{
		"": {"", ""}, "a=1&b": {"", "a=1&b"}, "berth_preview=x": {"x", ""}, "a=1&berth_preview=x&b=%20": {"x",
			"a=1&b=%20"},
		"berth_preview=x&berth_preview=y": {"y", ""}, "xberth_preview=x": {"", "xberth_preview=x"},
	} {
		if word, rest := TakeToken(query); word != want[0] || rest != want[1] {
			t.Errorf("%q: got %q, %q, want %q", query, word, rest, want)
		}
	}
}

func TestOwnPage(t *testing.T) {
	for _, c := range []struct {
		method, origin, site, mode, dest string
		want                             bool
	}{
		{"GET", "", "", "", "", true},
		{"GET", "", "none", "navigate", "document", true},
		{"POST", "http://h:1", "same-origin", "cors", "empty", true},
		{"GET", "https://h:1", "", "", "", true}, // a WebSocket's
		{"GET", "http://other:1", "", "", "", false},
		{"GET", "null", "", "", "", false},
		{"GET", "", "same-site", "no-cors", "script", false},
		{"GET", "", "same-site", "navigate", "iframe", false},
		{"GET", "", "cross-site", "navigate", "document", true},
		{"POST", "", "cross-site", "navigate", "document", false},
	} {
		r := &http.Request{Method: c.method, Host: "h:1", Header: http.Header{}}
		for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site,
			"Sec-Fetch-Mode": c.mode, "Sec-Fetch-Dest": c.dest} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := OwnPage(r); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func FuzzParseHost(f *testing.F) {
	f.Add(Host(hostID, 80, "d.example"))
	f.Add("80-cntr-x.d.example:1")
	f.Fuzz(func(t *testing.T, host string) {
		id, port, below := ParseHost(host, "d.example")
		if port == 0 {
			return
		}
		if again := Host(id, port, "d.example"); !below || again == "" || port > 65535 {
			t.Errorf("%q is port %d of %q", host, port, id)
		}
	})
}
