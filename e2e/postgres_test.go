package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/store/postgres/pgtest"
)

// TestOnPostgres runs TestCrash with state in PostgreSQL: a response with a stream and a
// container, kill -9, restart. A second server is refused.
func TestOnPostgres(t *testing.T) {
	db := pgtest.Start(t)
	s := newServerWith(t, "store: "+db.URL()+"\n")
	crash(t, s)
	if _, err := os.Stat(filepath.Join(s.state, "berth.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory has a database: %v", err)
	}
	if out, errs, err := s.berth("key", "list", "--state", s.state); err != nil {
		t.Errorf("berth key list: %v: %s%s", err, out, errs)
	}
	shown, errs, err := s.berth(append([]string{"config", "show"}, s.args...)...)
	if err != nil || !strings.Contains(shown, "REDACTED") {
		t.Errorf("berth config show: %v: %s%s", err, shown, errs)
	}
	for what, text := range map[string]string{"the log": s.log.String(), "berth config show": shown} {
		if strings.Contains(text, "p4ssword") {
			t.Errorf("%s has the password", what)
		}
	}
}

// TestPostgresRestarts stops PostgreSQL under load and starts it again. Requests during the stop get
// a 503; afterwards the server serves as before, and everything that it acknowledged is there.
func TestPostgresRestarts(t *testing.T) {
	db := pgtest.Start(t)
	s := newServerWith(t, "store: "+db.URL()+"\n")
	var made []string
	create := func() error {
		r, err := s.client().Responses.New(t.Context(), shellTask(fence("echo hello")))
		if err == nil {
			made = append(made, r.ID)
		}
		return err
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := db.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := create(); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("without its database: got %v, want a 503", err)
		}
		if err := db.Run(); err != nil {
			t.Fatal(err)
		}
		if err := create(); err != nil {
			t.Errorf("with its database again: %v", err)
		}
	}
	for _, id := range made {
		r, err := s.client().Responses.Get(t.Context(), id, responses.ResponseGetParams{})
		if err != nil || r.Status != "completed" || len(stdouts(r)) != 1 {
			t.Errorf("%s: got %v, %v", id, r, err)
		}
	}
}
