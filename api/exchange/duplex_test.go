package exchange_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/berth-run/berth/api/exchange"
)

// A body whose end is not known closes a connection of HTTP/1.1 and leaves one of HTTP/2 open: other requests
// use that at the same time.
func TestDuplexConnection(t *testing.T) {
	server := exchange.New(exchange.Options{Keys: noKeys{}, Log: slog.New(slog.DiscardHandler)})
	handler := server.Handler(func(x *exchange.Exchange, r *http.Request) {
		r, done, err := x.Duplex(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer done()
		_, _ = io.Copy(x, r.Body)
	})
	for _, http2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(handler)
		s.EnableHTTP2 = http2
		s.StartTLS()
		defer s.Close()
		client := s.Client()
		for i := range 3 {
			reused := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
			body := io.MultiReader(strings.NewReader("hello")) // of unknown length
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(text) != "hello" {
				t.Errorf("HTTP/2 %t: got %q, %v", http2, text, err)
			}
			if want := http2 && i > 0; reused != want {
				t.Errorf("HTTP/2 %t, request %d: the connection was reused: %t, want %t", http2, i, reused, want)
			}
		}
	}
}
