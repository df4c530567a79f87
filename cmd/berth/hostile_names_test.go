package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Ids of a server do not become names of files elsewhere.
func TestHostileID(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"object":"list","data":[{"id":"../../evil_abcd1234"}],"has_more":false}`))
	}))
	t.Cleanup(srv.Close)
	c := &client{base: srv.URL, http: srv.Client()}
	if id, err := responses.resolve(t.Context(), c, "abcd1234"); err == nil || !strings.Contains(err.Error(),
		"is no id") {
		t.Errorf("got %q, %v, want that it is no id", id, err)
	}
}

// The name of a copied directory is the user's, or one that a container may choose.
func TestDirectoryName(t *testing.T) {
	for _, tt := range []struct {
		given, from string
		hidden      bool
		want        string
	}{
		{".", "/mnt/data", false, "data"},
		{"out", "/mnt/data/out", false, "out"},
		{".git", "/mnt/data/.git", false, ".git"}, // the user asks for it
		{".", "/x/.git", false, ""},
		{".", "/x/.git", true, ".git"},
		{"~", "/x/HEAD", false, ""},
		{".", "/x/..", true, ""},
		{"..", "/x/..", true, ""},
		{".", `/x/..\..\evil`, true, ""},
		{".", "/x/a\u202eb", false, ""},
	} {
		got, err := (&treeCopy{hidden: tt.hidden}).directoryName(tt.given, tt.from)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%q in %q, hidden %v: got %q, %v, want %q", tt.given, tt.from, tt.hidden, got, err, tt.want)
		}
	}
}
