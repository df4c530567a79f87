package allow

import (
	"slices"
	"strings"
	"testing"
)

func TestParseRequest(t *testing.T) {
	for _, text := range []string{"", "GET", "GET example.com", "/x", "GET /x", "get example.com/", "GET  example.com/",
		"GET,get example.com/", "GET, example.com/", "GET,POST, example.com/", "* */", "GET *.*/", "GET example.com:443/",
		"GET 10.0.0.1/", "GET https://example.com/", "GET example.com/a*", "GET example.com/***", "GET example.com/?a=1",
		"GET example.com/%61", "GET example.com/#a", "GET example.com//a", "GET example.com/a/../b", "GET example.com/./a",
		"GET example.com/a\\b", "GET example.com/a\x00", "G\tT example.com/", "GET example.com/" + strings.Repeat("a/", 300),
		"GET example.com/\xff"} {
		if r, err := ParseRequest(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, r)
		}
	}
	r, err := ParseRequest("POST,GET *.Example.com/a/**")
	if err != nil || r.Host != "*.example.com" || !slices.Equal(r.Methods, []string{"GET", "HEAD", "POST"}) {
		t.Errorf("got %+v, %v", r, err)
	}
}
