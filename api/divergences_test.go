package api_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/api"
)

var pathInText = regexp.MustCompile("`(?:[A-Z]+ )?(/v1/[^` ]*)`")

// docs/divergences.md says of no route that it is missing or keeps nothing, if the server has it.
func TestDivergencesOfRoutes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/divergences.md")
	if err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, nil)
	missing := 0
	for row := range strings.Lines(string(page)) {
		cells := strings.Split(row, " | ")
		if len(cells) != 3 {
			continue
		}
		for _, found := range pathInText.FindAllStringSubmatch(cells[0], -1) {
			path, _, _ := strings.Cut(found[1], "/…")
			switch {
			case strings.HasPrefix(cells[2], "404: "):
				missing++
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					if resp := h.send(t.Context(), method, path, nil); resp.StatusCode != http.StatusNotFound {
						t.Errorf("the page says that there is no %s; %s got %d", path, method, resp.StatusCode)
					}
				}
			case !hasRoute(path, ""):
				t.Errorf("the page says how %s differs, but no route begins with it", path)
			case strings.Contains(cells[2], "not stored") && hasRoute("/v1/"+strings.Split(path, "/")[2], http.MethodGet):
				t.Errorf("the page says that what %s takes is not stored, but it can be read", path)
			}
		}
	}
	if missing < 5 {
		t.Errorf("found %d paths that the page says are missing, want at least 5", missing)
	}
}

// hasRoute reports whether a route of a method, or of any, has a path that begins with a path, whatever its parameters are called.
func hasRoute(path, method string) bool {
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	path = parameter.ReplaceAllString(path, "{}")
	return slices.ContainsFunc(api.Routes(), func(pattern string) bool {
		m, p, ok := strings.Cut(pattern, " ")
		if !ok {
			m, p = "", pattern
		}
		return strings.HasPrefix(parameter.ReplaceAllString(p, "{}"), path) && (method == "" || m == method)
	})
}
