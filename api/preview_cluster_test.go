package api_test

import (
	"net/http"
	"testing"

	"github.com/berth-run/berth/api"
)

// The head of an answer that breaks off after it reaches the client: a connection that ends without an answer makes
// clients repeat the request.
func TestPortHead(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(*api.Options) {})
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	port := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		check(t, http.NewResponseController(w).Flush())
		panic(http.ErrAbortHandler)
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 300 {
		resp, err := client.Get(h.url + "/v1/containers/" + id + "/ports/" + port + "/")
		if err != nil {
			t.Fatalf("the head was lost: %v", err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusBadGateway {
			t.Fatalf("got %s", resp.Status)
		}
	}
}
