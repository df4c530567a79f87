package drivertest

import (
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
)

// editor checks that the text editor and the restart of the shell, which are parts of the guest, work for
// the user of commands, with no more rights than that user has.
func (s lifecycle) editor(t *testing.T) {
	b := Start(t, s.open(t), sandbox.Spec{ID: "editor", Template: s.Template})
	edit := func(input string) Result {
		return b.Sh("str_replace_based_edit_tool <<'EOF'\n" + input + "\nEOF")
	}
	for _, step := range []struct{ input, want string }{
		{`{"command":"create","path":"a/it's.txt","file_text":"one\ntwo $HOME \\\n"}`,
			"Created a/it's.txt with 2 lines."},
		{`{"command":"str_replace","path":"a/it's.txt","old_str":"two","new_str":"2"}`, "     2\t2 $HOME \\"},
		{`{"command":"view","path":"a"}`, "a/it's.txt\n"},
	} {
		if r := edit(step.input); r.Code != 0 || !strings.Contains(r.Stdout, step.want) {
			t.Errorf("%s: got %+v, want %q", step.input, r, step.want)
		}
	}
	if got := b.Must(`cat "a/it's.txt"; stat -c %U "a/it's.txt" | grep -cx "$(id -un)"`); got != "one\n2 $HOME \\\n1" {
		t.Errorf("the file is %q", got)
	}
	if r := edit(`{"command":"view","path":"none"}`); r.Code != 1 || r.Stdout != "" || !strings.HasPrefix(r.Stderr,
		"Error: ") {
		t.Errorf("a file that does not exist: got %+v", r)
	}
	if s.isolates() && !s.features.NoRoot {
		for _, input := range []string{`{"command":"view","path":"/etc/shadow"}`,
			`{"command":"create","path":"../../etc/new","file_text":"x"}`,
			`{"command":"insert","path":"/etc/passwd","insert_line":0,"insert_text":"x"}`,
			`{"command":"create","path":"/.berth/guest","file_text":"x"}`} {
			if r := edit(input); r.Code != 1 || r.Stdout != "" {
				t.Errorf("%s: got %+v, want a refusal", input, r)
			}
		}
	}
	b.Must("mkdir d; cd d; export COLOUR=red; echo kept >f")
	if got := b.Must("restart_shell"); got == "" {
		t.Error("the restart reports nothing")
	}
	if got := b.Must(`echo "[$COLOUR] $(cat d/f)"`); got != "[] kept" {
		t.Errorf("after a restart: got %q", got)
	}
}
