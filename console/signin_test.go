package console

import "testing"

func TestSafeNext(t *testing.T) {
	for next, want := range map[string]string{
		"/console/responses/resp_1?x=y": "/console/responses/resp_1?x=y",
		"":                              Path,
		"https://evil.example/console/": Path,
		"//evil.example/console/":       Path,
		"/console/../v1/models":         Path,
		"/console/%2e%2e/v1/models":     Path,
		"/\\evil.example/console/":      Path,
		"/console/\\..":                 Path,
		"/v1/models":                    Path,
		"javascript:alert(1)":           Path,
	} {
		if got := safeNext(next); got != want {
			t.Errorf("%q: got %q, want %q", next, got, want)
		}
	}
}
