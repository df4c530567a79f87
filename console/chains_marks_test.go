package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// The list asks the API for the responses of a key and of a tool. It names a key only if the API has shown it: an id in
// the address could be that of another project's key.
func TestMarks(t *testing.T) {
	const mine, theirs = "key_0123456789mine", "key_0123456789theirs"
	api := &stubAPI{answers: map[string]any{
		"/v1/responses": listed(map[string]any{"id": "resp_1", "model": "m", "status": "completed", "api_key_id": mine}),
		"/v1/responses/resp_1/input_items": listed(map[string]any{"type": "message", "role": "user",
			"content": []any{map[string]any{"type": "input_text", "text": "Noon"}}})}}
	c := New(api, slog.New(slog.DiscardHandler))
	c.Names = func(context.Context, berth.ProjectID) string { return "" }
	c.Keys = func(context.Context) map[berth.KeyID]string {
		return map[berth.KeyID]string{mine: "ann's laptop", theirs: "secret plan"}
	}
	show := func(query string) string {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/console/responses?"+query, nil))
		return w.Body.String()
	}
	if text := show("key=" + mine + "&tool=shell&search=x"); !strings.Contains(text, "key: ann&#39;s laptop") ||
		!strings.Contains(text, "tool: shell") || !strings.Contains(text, `name="tool" value="shell"`) {
		t.Errorf("the filters are not shown: %s", text)
	}
	asked := strings.Join(api.asked, "\n")
	if !strings.Contains(asked, "api_key_id="+mine) || !strings.Contains(asked, "tool=shell") {
		t.Errorf("the console asked %s", asked)
	}
	if text := show("key=" + theirs); strings.Contains(text, "secret plan") || !strings.Contains(text, theirs) {
		t.Errorf("the name of another project's key is shown: %s", text)
	}
}
