package upstream

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A key in a vendor's own header is not sent to another host after a redirect.
func TestKeysStay(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("got a request with %v", r.Header)
	}))
	defer other.Close()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		case "/here":
			_, _ = w.Write([]byte("ok"))
		default:
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
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

// A key does not follow a redirect from https to http, where others could read it.
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
		t.Errorf("got %s from %s, want the redirect itself", res.Status, res.Request.URL)
	}
}

// A textAnswer is an answer of one text.
type textAnswer struct{}

func (textAnswer) Events(io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) { yield([]byte("a"), nil) }
}

func (textAnswer) Take(data []byte, out []model.Delta) ([]model.Delta, error) {
	return append(out, model.Text{Text: string(data)}), nil
}

func (textAnswer) Finish(out []model.Delta) ([]model.Delta, error) {
	return append(out, model.Finish{}), nil
}

func (textAnswer) Progress() Progress { return Progress{} }

// Stream closes the connection when its consumer stops iterating.
func TestStreamCloses(t *testing.T) {
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
	turn := Turn{
		Send: func(ctx context.Context) (*http.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				return nil, err
			}
			return u.HTTPClient.Do(req)
		},
		Answer: func() Answer { return textAnswer{} },
	}
	for range u.Stream(t.Context(), turn) {
		break
	}
	<-gone
}
