package main

import (
	"io"
	"strings"
	"testing"

	"github.com/berth-run/berth/server/state"
)

// A database is compacted only while no server uses it.
func TestCompactIsRefusedUnderAServer(t *testing.T) {
	dir := t.TempDir()
	unlock, err := state.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := newDB()
	cmd.SetArgs([]string{"compact", "--state", dir})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("got %v, want an error that a server uses it", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	db, err := state.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Execute(); err != nil {
		t.Error(err)
	}
}
