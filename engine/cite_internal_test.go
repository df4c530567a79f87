package engine

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

// TestCitations: the files that a text mentions, and where.
func TestCitations(t *testing.T) {
	t.Parallel()
	var files []*berth.ContainerFile
	for _, name := range []string{"a.txt", "a.txt.gz", "out/report 1.html", "naïve.csv", "x", "(odd).png"} {
		files = append(files, &berth.ContainerFile{ID: berth.CFileID("cfile_" + name), ContainerID: "cntr_1",
			Path: berth.WorkDir + "/" + name})
	}
	type cited struct{ File, Text, Name string }
	for _, c := range []struct {
		name, text string
		want       []cited
	}{
		{"a link", "Here’s [it](sandbox:/mnt/data/a.txt).",
			[]cited{{"cfile_a.txt", "sandbox:/mnt/data/a.txt", "a.txt"}}},
		{"a bare path at the end of a sentence", "It is in /mnt/data/a.txt.",
			[]cited{{"cfile_a.txt", "/mnt/data/a.txt", "a.txt"}}},
		{"the longer of two names", "/mnt/data/a.txt.gz",
			[]cited{{"cfile_a.txt.gz", "/mnt/data/a.txt.gz", "a.txt.gz"}}},
		{"a longer name that is not there", "/mnt/data/a.txt.bz2 /mnt/data/a.txt-old /mnt/data/a.txt/b /mnt/data/xx",
			nil},
		{"a space, as it is", "See `/mnt/data/out/report 1.html`",
			[]cited{{"cfile_out/report 1.html", "/mnt/data/out/report 1.html", "report 1.html"}}},
		{"a space, as in a link", "[r](sandbox:/mnt/data/out/report%201.html)",
			[]cited{{"cfile_out/report 1.html", "sandbox:/mnt/data/out/report%201.html", "report 1.html"}}},
		{"a name in brackets", "/mnt/data/(odd).png!",
			[]cited{{"cfile_(odd).png", "/mnt/data/(odd).png", "(odd).png"}}},
		{"several, and letters of many bytes before", "Größe: “/mnt/data/x”, “/mnt/data/naïve.csv”",
			[]cited{{"cfile_x", "/mnt/data/x", "x"}, {"cfile_naïve.csv", "/mnt/data/naïve.csv", "naïve.csv"}}},
		{"twice", "/mnt/data/x /mnt/data/x", []cited{{"cfile_x", "/mnt/data/x", "x"}, {"cfile_x", "/mnt/data/x", "x"}}},
		{"nothing of the container", "/mnt/data/ /mnt/data/none /mnt/data/%zz /etc/a.txt", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []cited
			for _, f := range citations(c.text, files) {
				got = append(got, cited{string(f.FileID), string([]rune(c.text)[f.StartIndex:f.EndIndex]), f.Filename})
				if f.Type != "container_file_citation" || f.ContainerID != "cntr_1" {
					t.Errorf("got %+v", f)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("citations (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzCitations(f *testing.F) {
	f.Add("see sandbox:/mnt/data/a.txt and /mnt/data/%61.txt", "a.txt")
	f.Fuzz(func(t *testing.T, text, name string) {
		n := utf8.RuneCountInString(text)
		last := 0
		for _, c := range citations(text, []*berth.ContainerFile{{ID: "cfile_1", Path: berth.WorkDir + "/" + name}}) {
			if c.StartIndex < last || c.EndIndex <= c.StartIndex || c.EndIndex > n {
				t.Fatalf("citation %d…%d after %d in %d characters", c.StartIndex, c.EndIndex, last, n)
			}
			last = c.EndIndex
		}
	})
}
