package api_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/api"
)

// A routeObserver reports the route of each answer.
type routeObserver chan string

func (routeObserver) Opened(string) func() { return func() {} }

func (o routeObserver) Answered(route string, _ int, _ time.Duration) { o <- route }

// pathParameter matches a parameter in a pattern.
var pathParameter = regexp.MustCompile(`\{[^}]*\}`)

// Each path that the server serves is an entry of the table, and each request to it passes Route.
func TestEveryPathPassesRoute(t *testing.T) {
	var stop context.CancelFunc
	answered := make(routeObserver, 1)
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Observer = answered
		o.Preview.Domain = "sandboxes.example"
		withSandboxes(t, &stop)(o)
		withOpenTerminal(o)
		withShells(o)
		withSCIM(t)(o)
		o.Console = func(http.Handler, api.Access) http.Handler { return http.NotFoundHandler() }
	})
	h.key("sk-mine", "proj_mine")
	asked := map[string]bool{}
	send := func(route, method, path, host string, header map[string]string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, strings.NewReader("{}"))
		check(t, err)
		r.Host = host
		r.Header.Set("Content-Type", "application/json")
		for name, value := range header {
			r.Header.Set(name, value)
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		check(t, err)
		check(t, resp.Body.Close())
		if got := <-answered; got != route {
			t.Errorf("%s %s at %s passed %s, want %s", method, path, host, got, route)
		}
		asked[route] = true
	}
	const sandbox = "E2B sandbox"
	id := strings.Repeat("a", 48)
	send(sandbox, "GET", "/", "49983-"+id+".sandboxes.example", nil)
	send(sandbox, "GET", "/any", "8000-"+id+".sandboxes.example", nil)
	send(sandbox, "POST", "/execute", "api.example", map[string]string{"E2b-Sandbox-Id": id,
		"E2b-Sandbox-Port": "49999"})
	send(sandbox, "GET", "/any", "api.example", map[string]string{"E2b-Sandbox-Id": id})
	send(sandbox, "GET", "/files?path=a&signature=v1_x", "api.example", nil)
	send("preview host", "GET", "/any", "8000-cntr-"+id+".sandboxes.example", nil)
	send("preview host", "GET", "/", "anything.sandboxes.example", map[string]string{"E2b-Sandbox-Id": id})
	send("Open Terminal's WebSocket", "GET", "/open-terminal/api/terminals/x", "api.example",
		map[string]string{"Upgrade": "websocket"})
	anthropic := map[string]string{"Anthropic-Version": "2023-06-01"}
	send("none", "GET", "/nothing", "api.example", nil)
	send("/console/", "GET", "/console/", "api.example", nil)
	for _, rt := range api.Table() {
		path := pathParameter.ReplaceAllString(strings.Replace(rt.Path, "{$}", "", 1), "x")
		if rt.Select != nil && strings.HasPrefix(rt.Path, "/v1/") { // a path that Anthropic's API shares with OpenAI's
			send(rt.Pattern(), rt.Method, path, "api.example", anthropic)
			continue
		}
		if rt.Host != nil || rt.Select != nil {
			if !asked[rt.Pattern()] {
				t.Errorf("no request of this test is for %s", rt.Pattern())
			}
			continue
		}
		method := rt.Method
		if method == "" {
			method = "GET"
		}
		send(rt.Pattern(), method, path, "api.example", nil)
	}
}
