package editor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// edit runs the editor with the fields of a command, as name and value.
func edit(t *testing.T, fields ...any) (string, error) {
	t.Helper()
	input := map[string]any{}
	for i := 0; i < len(fields); i += 2 {
		input[fields[i].(string)] = fields[i+1]
	}
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = Run(strings.NewReader(string(raw)), &out)
	return out.String(), err
}

// write creates a file in a directory of the test.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.txt")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func content(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestView(t *testing.T) {
	path := write(t, "a\nb\n\td\n")
	for _, tc := range []struct {
		lines any
		want  string
	}{
		{nil, "     1\ta\n     2\tb\n     3\t\td\n"},
		{[]int{2, 3}, "     2\tb\n     3\t\td\n"},
		{[]int{2, -1}, "     2\tb\n     3\t\td\n"},
		{[]int{3, 99}, "     3\t\td\n"},
	} {
		if got, err := edit(t, "command", "view", "path", path, "view_range", tc.lines); err != nil || got != tc.want {
			t.Errorf("view_range %v: got %q, %v, want %q", tc.lines, got, err, tc.want)
		}
	}
	for _, lines := range [][]int{{0, 2}, {4, 5}, {3, 2}, {1}, {1, 2, 3}, {-1, -1}} {
		if got, err := edit(t, "command", "view", "path", path, "view_range", lines); err == nil {
			t.Errorf("view_range %v: got %q, want an error", lines, got)
		}
	}
}

func TestViewDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.txt", "b/c/d/deep", "b/e.txt", ".hidden", "node_modules/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, filepath.Join(dir, "b", "loop")); err != nil {
		t.Fatal(err)
	}
	got, err := edit(t, "command", "view", "path", dir)
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(got, "\n")
	if want := strings.ReplaceAll("D/a.txt\nD/b/\nD/b/c/\nD/b/e.txt\nD/b/loop\n", "D", dir); list != want {
		t.Errorf("got\n%s\nwant\n%s", list, want)
	}
}

func TestReplace(t *testing.T) {
	for _, tc := range []struct{ name, before, old, replacement, after, refusal string }{
		{"once", "one\ntwo\n", "two", "2", "one\n2\n", ""},
		{"lines", "a\nb\nc\n", "a\nb\n", "x\n", "x\nc\n", ""},
		{"deleted", "one two", " two", "", "one", ""},
		{"missing", "one", "two", "x", "one", "does not occur"},
		{"twice", "a\na\n", "a", "x", "a\na\n", "lines 1, 2"},
		{"overlapping", "aaa", "aa", "x", "aaa", "more than once"},
		{"empty", "a", "", "x", "a", "old_str"},
		{"line ends", "a\r\nb\r\n", "a\nb", "x", "a\r\nb\r\n", `\r\n`},
		{"Latin-1", "caf\xe9 one", "one", "two", "caf\xe9 two", ""},
	} {
		path := write(t, tc.before)
		got, err := edit(t, "command", "str_replace", "path", path, "old_str", tc.old, "new_str", tc.replacement)
		if tc.refusal == "" && err != nil || tc.refusal != "" && (err == nil || !strings.Contains(err.Error(),
			tc.refusal)) {
			t.Errorf("%s: got %q, %v, want error %q", tc.name, got, err, tc.refusal)
		}
		if after := content(t, path); after != tc.after {
			t.Errorf("%s: the file is %q, want %q", tc.name, after, tc.after)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: the mode is %v, %v", tc.name, info.Mode(), err)
		}
	}
}

func TestInsert(t *testing.T) {
	for _, tc := range []struct {
		before string
		line   int
		text   string
		after  string
	}{
		{"a\nb\n", 0, "x", "x\na\nb\n"},
		{"a\nb\n", 1, "x\n", "a\nx\nb\n"},
		{"a\nb\n", 2, "x", "a\nb\nx\n"},
		{"a\nb", 2, "x", "a\nb\nx"},
		{"", 0, "x\n", "x\n"},
		{"a\n", 3, "x", ""},
		{"a\n", -1, "x", ""},
	} {
		path := write(t, tc.before)
		got, err := edit(t, "command", "insert", "path", path, "insert_line", tc.line, "insert_text", tc.text)
		want := tc.after
		if tc.after == "" {
			want = tc.before
		}
		if after := content(t, path); after != want || (err != nil) != (tc.after == "") {
			t.Errorf("%q after line %d of %q: got %q, %q, %v, want %q", tc.text, tc.line, tc.before, after, got, err,
				want)
		}
	}
	path := write(t, "a\n")
	if _, err := edit(t, "command", "insert", "path", path, "insert_line", 1, "new_str", "b"); err != nil ||
		content(t, path) != "a\nb\n" {
		t.Errorf("with new_str: %v, %q", err, content(t, path))
	}
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "dir", "a.txt")
	if _, err := edit(t, "command", "create", "path", path, "file_text", "one\n"); err != nil ||
		content(t, path) != "one\n" {
		t.Fatalf("created: %v", err)
	}
	got, err := edit(t, "command", "create", "path", path, "file_text", "2")
	if err != nil || content(t, path) != "2" || !strings.Contains(got, "existed") {
		t.Errorf("replaced: %q, %v, %q", got, err, content(t, path))
	}
	if _, err := edit(t, "command", "create", "path", filepath.Dir(path), "file_text", "2"); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if _, err := edit(t, "command", "create", "path", path); err == nil || content(t, path) != "2" {
		t.Errorf("without file_text: %v, %q", err, content(t, path))
	}
}

// A file that is no text file is refused, without waiting for it and without changing it.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	fifo, binary, large, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "binary"), filepath.Join(dir, "large"),
		filepath.Join(dir, "link")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, []byte("ELF\x00\x01a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(link, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, binary, large, link, "/dev/zero", filepath.Join(dir, "none"), "a\x00b", ""} {
		for _, command := range []string{"view", "str_replace", "insert"} {
			got, err := edit(t, "command", command, "path", path, "old_str", "a", "new_str", "b", "insert_line", 0,
				"insert_text", "x")
			if err == nil || got != "" {
				t.Errorf("%s %q: got %q, %v, want an error", command, path, got, err)
			}
		}
	}
	if content(t, binary) != "ELF\x00\x01a" {
		t.Error("the binary file was changed")
	}
	for _, path := range []string{fifo, large, "/dev/null"} {
		if got, err := edit(t, "command", "create", "path", path, "file_text", "x"); err == nil {
			t.Errorf("create %q: got %q, want an error", path, got)
		}
	}
}

func TestInvalidCommands(t *testing.T) {
	for _, input := range []string{"", "{", "[]", `"view"`, "{}", `{"command":"undo_edit","path":"/a"}`,
		`{"command":5,"path":"/a"}`,
		`{"command":"view","path":"/a","view_range":"all"}`, `{"command":"view","path":"` + strings.Repeat("a",
			maxInput) + `"}`} {
		var out strings.Builder
		if err := Run(strings.NewReader(input), &out); err == nil || out.Len() > 0 {
			t.Errorf("%.40q: got %q, %v, want an error", input, out.String(), err)
		}
	}
}

// A link is followed, and what it points to is changed.
func TestLink(t *testing.T) {
	path := write(t, "one")
	link := filepath.Join(filepath.Dir(path), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := edit(t, "command", "str_replace", "path", link, "old_str", "one", "new_str", "two"); err != nil ||
		content(t, path) != "two" {
		t.Errorf("got %v, %q", err, content(t, path))
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced by a file")
	}
}

func FuzzRun(f *testing.F) {
	f.Add("str_replace", "a\nb", "b", "c", 1)
	f.Add("insert", "", "", "x", 0)
	f.Fuzz(func(t *testing.T, command, text, old, replacement string, line int) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := edit(t, "command", command, "path", path, "old_str", old, "new_str", replacement, "insert_line", line,
			"insert_text", replacement, "view_range", []int{line, line})
		if after := content(t, path); err != nil && after != text {
			t.Errorf("a failed %s changed %q to %q", command, text, after)
		}
	})
}
