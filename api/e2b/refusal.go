package e2b

import (
	"encoding/json"
	htmltemplate "html/template"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
)

// A refusal is an answer of the proxy itself.
type refusal struct {
	status int
	body   refusalBody
}

// A refusalBody is the JSON of a refusal.
type refusalBody interface{ message() string }

func (e *refusal) Error() string { return http.StatusText(e.status) }

// write writes the answer: a page for a browser that visits an address, and else JSON.
func (e *refusal) write(x *exchange.Exchange, r *http.Request) {
	x.Header().Add("Vary", "Accept")
	h := x.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if !preview.Visits(r) {
		h.Set("Content-Type", "application/json; charset=utf-8") // as E2B's proxy
		x.WriteHeader(e.status)
		raw, _ := json.Marshal(e.body) // strings and numbers
		_, _ = x.Write(raw)            // the client is gone
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Add("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	x.WriteHeader(e.status)
	_ = refusalPage.Execute(x, struct {
		Status  int
		Message string
	}{e.status, e.body.message()}) // the client is gone
}

var refusalPage = htmltemplate.Must(htmltemplate.New("refusal").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Message}}</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 36em; margin: 15vh auto; padding: 0 1em }
</style>
<h1>{{.Message}}</h1>
<p>The server of this address answered with status {{.Status}}.</p>
</html>
`))

// A proxyFailure is an error about a sandbox or one of its ports.
type proxyFailure struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"` // the HTTP status
}

func (f proxyFailure) message() string { return f.Message }

func (f failure) message() string { return f.Message }

func (f contentFailure) message() string { return f.Message }

// gone is the answer for a sandbox that does not run, from which clients conclude that it ended.
func gone(name string) error {
	return &refusal{http.StatusBadGateway, proxyFailure{SandboxID: name, Message: "The sandbox was not found",
		Code: http.StatusBadGateway}}
}

// mayNotResume is the answer to a request without a valid token, which would resume a paused sandbox.
func mayNotResume(id berth.ContainerID) error {
	return &refusal{http.StatusForbidden, proxyFailure{SandboxID: nameOf(id), Code: http.StatusForbidden,
		Message: "The sandbox is paused. A request resumes it only with its access token."}}
}

func unauthorized(message string) error {
	return &refusal{http.StatusUnauthorized, failure{http.StatusUnauthorized, message}}
}

// portClosed is the answer for a port that no process serves.
func portClosed(to address) error {
	return &refusal{http.StatusBadGateway, proxyFailure{SandboxID: to.sandbox,
		Message: "The sandbox is running but port is not open", Port: to.port, Code: http.StatusBadGateway}}
}
