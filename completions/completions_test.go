package completions_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/store/sqlite"
)

const (
	mine   berth.ProjectID = "proj_mine"
	theirs berth.ProjectID = "proj_theirs"
)

func open(t *testing.T) *completions.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return completions.New(db)
}

// A filter passes over completions that do not match, and the page still has its size.
func TestFilteredPage(t *testing.T) {
	s := open(t)
	for i, id := range []string{"a", "b", "c", "d", "e"} {
		body := json.RawMessage(`{"model":"even"}`)
		if i%2 == 1 {
			body = json.RawMessage(`{"model":"odd"}`)
		}
		if err := s.Create(t.Context(), mine, int64(i), completions.Document{ID: id, Body: body}, nil); err != nil {
			t.Fatal(err)
		}
	}
	even := func(body json.RawMessage) bool { return bytes.Contains(body, []byte("even")) }
	list, more, err := s.List(t.Context(), mine, berth.Page{Limit: 2, Ascending: true}, even)
	if err != nil || len(list) != 2 || list[0].ID != "a" || list[1].ID != "c" || !more {
		t.Errorf("got %v, more %v, %v", list, more, err)
	}
	list, more, err = s.List(t.Context(), mine, berth.Page{Limit: 2, Ascending: true, After: "c"}, even)
	if err != nil || len(list) != 1 || list[0].ID != "e" || more {
		t.Errorf("the next page: got %v, more %v, %v", list, more, err)
	}
}

// The messages go with their completion. Another project finds neither.
func TestMessages(t *testing.T) {
	s := open(t)
	messages := []completions.Document{{ID: "a-0", Body: json.RawMessage(`{}`)}, {ID: "a-1", Body: json.RawMessage(`{}`)}}
	if err := s.Create(t.Context(), mine, 1, completions.Document{ID: "a", Body: json.RawMessage(`{}`)},
		messages); err != nil {
		t.Fatal(err)
	}
	page := berth.Page{Limit: 1, Ascending: true}
	list, more, err := s.Messages(t.Context(), mine, "a", page)
	if err != nil || len(list) != 1 || list[0].ID != "a-0" || !more {
		t.Errorf("got %v, more %v, %v", list, more, err)
	}
	page.After = "none"
	if _, _, err := s.Messages(t.Context(), mine, "a", page); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("after an unknown message: got %v", err)
	}
	if _, _, err := s.Messages(t.Context(), theirs, "a", page); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another project: got %v", err)
	}
	if err := s.Delete(t.Context(), mine, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), mine, "a"); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("deleted: got %v", err)
	}
}
