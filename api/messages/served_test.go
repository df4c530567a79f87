package messages

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

// The first version of code execution lists the files that its code has made.
func TestCodeResultFiles(t *testing.T) {
	it := berth.NewItem(berth.CodeInterpreterCall{ID: "ci_1", Type: berth.ItemCodeInterpreterCall,
		Status: "completed", Code: "plot()", Berth: &berth.CodeInterpreterBerth{Files: []berth.FileChange{
			{Path: "/mnt/data/a.png", Type: "created"}, {Path: "/mnt/data/b", Type: "deleted"},
			{Path: "/mnt/data/c", Type: "updated"}, {Path: "/mnt/data/unlisted", Type: "created"}}}})
	listed := 0
	s := servedItem{outputs: func() map[string]berth.FileID {
		listed++
		return map[string]berth.FileID{"/mnt/data/a.png": "cfile_a_1", "/mnt/data/b": "cfile_b_1", "/mnt/data/c": "cfile_c_1"}
	}}
	if err := s.read(it); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(s.blocks[1])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_ci_1","content":{"type":"code_execution_result",` +
		`"stdout":"","stderr":"","return_code":0,"content":[{"type":"code_execution_output","file_id":"cfile_a_1"},` +
		`{"type":"code_execution_output","file_id":"cfile_c_1"}]}}`
	if diff := cmp.Diff(want, string(got)); diff != "" || listed != 1 {
		t.Errorf("listed %d times (-want +got):\n%s", listed, diff)
	}
}
