package console

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// TestKeys: the page shows on what terms keys were given out and who made them, all as text, and only the forms that
// the visitor may send.
func TestKeys(t *testing.T) {
	hostile := `<img src=x onerror=alert(1)>`
	used := int64(1)
	for _, p := range []*berth.Project{nil, {ID: "proj_1", Name: hostile, Status: berth.ProjectActive}} {
		for _, may := range []bool{true, false} {
			c := New(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
			c.Access = func(*http.Request) func(string, ...berth.Permission) error {
				return func(route string, _ ...berth.Permission) error {
					if may {
						return nil
					}
					return errors.New("missing " + hostile)
				}
			}
			v, err := c.visit(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/console/admin-keys", nil))
			if err != nil {
				t.Fatal(err)
			}
			data := &keysPage{Project: p, Form: v.formToken(), Persons: true, Path: "/console/admin-keys",
				Keys: []keyRow{{ID: "key_1", Name: hostile, RedactedValue: "sk-berth-...abcd", LastUsedAt: &used, Note: hostile,
					OwnerID: "user_1", Role: berth.RoleViewer, Scope: berth.KeyScope{Routes: []string{hostile}},
					OwnerName: hostile, Maker: "ada@example.com"}}}
			var b bytes.Buffer
			if err := templates().ExecuteTemplate(&b, "keys", &page{Data: data, Form: v.formToken(), visit: v,
				Admin: true}); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			for _, want := range []string{"…abcd", "viewer", "scoped", "ada@example.com", "object_id=key_1", "&lt;img"} {
				if !strings.Contains(text, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
			if strings.Contains(text, hostile) {
				t.Error("a name is part of the page's HTML")
			}
			if got := strings.Count(text, "Revoke for good") + strings.Count(text, "New key"); may != (got == 2) ||
				!may && (got != 0 || !strings.Contains(text, "missing &lt;img")) {
				t.Errorf("may %v: got %d forms", may, got)
			}
		}
	}
}
