package console

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A stubAPI answers with a value for each path, without its query, and notes the requests.
type stubAPI struct {
	answers map[string]any
	asked   []string // with their queries
}

func (a *stubAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked = append(a.asked, r.URL.RequestURI())
	answer, ok := a.answers[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]any{"error": map[string]any{"message": "There is no " + r.URL.Path}}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// listed returns a list of the API.
func listed(data ...any) any {
	if data == nil {
		data = []any{}
	}
	return map[string]any{"data": data, "has_more": false}
}

// page returns a page of a console without keys.
func (a *stubAPI) page(t *testing.T, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	New(a, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/console/"+path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: got %d: %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}
