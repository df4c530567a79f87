package doctor

import (
	"strings"
	"testing"

	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// Doctor shows the address of the database without the password.
func TestCheckDatabase(t *testing.T) {
	at, dir := pgtest.URL(t), t.TempDir()
	c, err := configOf(t, "store: "+at+"\n")
	if err != nil {
		t.Fatal(err)
	}
	db, err := state.OpenDatabase(t.Context(), dir, state.Use{URL: at, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	leaks := func(text string) bool { return strings.Contains(text, "p4ssword") }
	found := checkDatabase(t.Context(), dir, c)
	if len(found) != 1 || !found[0].OK || !strings.Contains(found[0].Detail, "in use by berth") ||
		leaks(found[0].Detail) {
		t.Errorf("doctor: got %+v", found)
	}
	c.Store.URL = strings.Replace(at, "p4ssword", "wr0ng", 1)
	if found := checkDatabase(t.Context(), dir, c); len(found) != 1 || found[0].OK ||
		strings.Contains(found[0].Detail, "wr0ng") {
		t.Errorf("doctor with another password: got %+v", found)
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }
