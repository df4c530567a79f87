// Package forward passes requests to other servers.
package forward

import (
	"net/http"
	"net/http/httputil"
)

// Serve passes a request to a reverse proxy. It sends the head of an answer of unknown length before its body.
// Otherwise an answer that breaks off after its head could lose it, and clients repeat a request whose connection ends
// without an answer.
func Serve(proxy httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	out := &writer{ResponseWriter: w}
	modify := proxy.ModifyResponse
	proxy.ModifyResponse = func(resp *http.Response) error {
		out.flush = resp.ContentLength < 0
		if modify == nil {
			return nil
		}
		return modify(resp)
	}
	proxy.ServeHTTP(out, r)
}

type writer struct {
	http.ResponseWriter
	flush bool
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	if w.flush && status >= http.StatusOK {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // the copy of the body reports the failure
	}
}

// Unwrap lets http.ResponseController find what the server's writer can do.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
