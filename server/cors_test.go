package server

import (
	"slices"
	"strings"
	"testing"
)

func TestCORSConfig(t *testing.T) {
	c, err := readConfig(t,
		"cors: {origins: [https://App.example, 'http://localhost:3000', 'https://a.example:443']}\n")
	if want := []string{"https://app.example", "http://localhost:3000", "https://a.example"}; err != nil ||
		!slices.Equal(c.CORS.Origins, want) {
		t.Errorf("got %+v, %v, want %v", c, err, want)
	}
	if c, err = readConfig(t, "cors: {origins: ['*']}\n"); err != nil || len(c.CORS.Origins) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, origins := range []string{"app.example", "https://app.example/", "https://app.example/x",
		"https://*.example", "https://user@app.example", "ftp://app.example", "'null'",
		"''", "'*', https://app.example", "'https://app.example?x'"} {
		if _, err := readConfig(t, "cors: {origins: ["+origins+"]}\n"); err == nil || !strings.Contains(err.Error(),
			"cors.origins") {
			t.Errorf("%s: got %v", origins, err)
		}
	}
}
