package upstream

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A key in a vendor's own header does not follow a redirection to another host.
func TestKeysStay(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked with %v", r.Header)
	}))
	defer stranger.Close()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		case "/here":
			_, _ = w.Write([]byte("ok"))
		default:
			http.Redirect(w, r, stranger.URL, http.StatusTemporaryRedirect)
		}
	}))
	defer vendor.Close()
	u, err := New(Options{BaseURL: vendor.URL})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) ([]byte, error) {
		return u.Get(t.Context(), func(ctx context.Context) (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, vendor.URL+path, nil)
			if err != nil {
				return nil, err
			}
			req.Header.Set("X-Api-Key", "secret")
			return u.HTTPClient.Do(req)
		}, Explain)
	}
	if body, err := get("/moved"); string(body) != "ok" {
		t.Errorf("on the same host: got %q, %v", body, err)
	}
	if _, err := get("/away"); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("to another host: got %v", err)
	}
}

// A key does not follow a redirection from https to http, where others could read it.
func TestKeysStayEncrypted(t *testing.T) {
	vendor := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+"/plain", http.StatusTemporaryRedirect)
	}))
	defer vendor.Close()
	u, err := New(Options{BaseURL: vendor.URL, TLS: vendor.Client().Transport.(*http.Transport).TLSClientConfig})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, vendor.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	res, err := u.HTTPClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusTemporaryRedirect || res.Request.URL.Scheme != "https" {
		t.Errorf("got %s from %s, want the redirection itself", res.Status, res.Request.URL)
	}
}

// An answer that its reader gives up is closed.
func TestAskCloses(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	u, err := New(Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	q := Question{
		Send: func(ctx context.Context) (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				return nil, err
			}
			return u.HTTPClient.Do(req)
		},
		Read: func(*Watch) iter.Seq2[model.Delta, error] {
			return func(yield func(model.Delta, error) bool) { yield(model.Text{Text: "a"}, nil) }
		},
	}
	for range u.Ask(t.Context(), q) {
		break
	}
	<-gone
}
