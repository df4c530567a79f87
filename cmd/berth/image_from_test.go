package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// --dockerfile takes a directory with a Dockerfile, or a file of any name, whose directory is the build's context.
func TestDockerfile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.dockerfile")
	if err := os.WriteFile(file, []byte("FROM berth/base\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		args []string
	}{
		{dir, []string{"--pull"}},
		{file, []string{"--file", file, "--pull"}},
		{filepath.Join(dir, "missing"), []string{"--pull"}},
	} {
		context, args := dockerfile(test.path, []string{"--pull"})
		want := dir
		if test.path != file {
			want = test.path
		}
		if context != want || !slices.Equal(args, test.args) {
			t.Errorf("%s: got the context %s and %q, want %s and %q", test.path, context, args, want, test.args)
		}
	}
}
