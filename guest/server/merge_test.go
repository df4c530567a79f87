package server

import (
	"os/exec"
	"strings"
	"testing"
)

func TestMerged(t *testing.T) {
	const before = "declare -x A=\"1\"\ndeclare -x B=\"x\ny\"\ndeclare -x PWD=\"/\"\n"
	for _, test := range []struct {
		name string
		left []string
		want string
	}{
		{"nothing changed", []string{before, before}, before},
		{"one only", []string{"anything"}, "anything"},
		{"each its own", []string{strings.Replace(before, "1", "2", 1), before + "declare -x C\n"},
			"declare -x A=\"2\"\ndeclare -x B=\"x\ny\"\ndeclare -x PWD=\"/\"\ndeclare -x C\n"},
		{"unset by the first", []string{"declare -x A=\"1\"\ndeclare -x PWD=\"/\"\n", before},
			"declare -x A=\"1\"\ndeclare -x PWD=\"/\"\n"},
		{"unset, then set", []string{"declare -x A=\"1\"\ndeclare -x PWD=\"/\"\n", strings.Replace(before, "x\ny", "z",
			1)},
			"declare -x A=\"1\"\ndeclare -x B=\"z\"\ndeclare -x PWD=\"/\"\n"},
		{"both, the last holds", []string{strings.Replace(before, "1", "2", 1), strings.Replace(before, "1", "3", 1)},
			strings.Replace(before, "1", "3", 1)},
		{"not export's", []string{"declare -x A=\"2\"\n", "rm -rf /\n"}, "declare -x A=\"2\"\nrm -rf /\n"},
		{"never ends", []string{"declare -x A=\"2\n", before}, "declare -x A=\"2\n" + before},
	} {
		if got := merged(before, test.left); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// The output of real shells for difficult values is split at the right places.
func TestDeclarations(t *testing.T) {
	values := []string{"plain", "two\nlines", "tab\tand \x01 control", `it's "q" $x \ and \`, "$'ansi'", "'", "\"",
		"declare -x Z=\"1\"\nexport Y='2'\n"}
	for _, sh := range []string{"bash", "sh"} {
		cmd := exec.Command(sh, "-c", "export -p")
		for i, v := range values {
			cmd.Env = append(cmd.Env, string(rune('A'+i))+"_="+v)
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		all, ok := declarations(string(out))
		if !ok {
			t.Fatalf("the output of %s is not understood:\n%s", sh, out)
		}
		found := textOf(all)
		for i := range values {
			if _, ok := found[string(rune('A'+i))+"_"]; !ok {
				t.Errorf("%s: no %c_ in %q", sh, 'A'+i, all)
			}
		}
		if _, ok := found["Z"]; ok || found["Y"] != "" {
			t.Errorf("%s: a value passes for a declaration", sh)
		}
	}
}

func FuzzDeclarations(f *testing.F) {
	f.Add("declare -x A=\"1\"\n")
	f.Add("export A='1'\n")
	f.Add("declare -x A=$'a\\'\\n'\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, ok := declarations(text)
		var b strings.Builder
		for _, d := range all {
			b.WriteString(d.text)
		}
		if ok && b.String() != text {
			t.Errorf("%q came back as %q", text, b.String())
		}
	})
}
