package skills

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"
)

const good = "---\nname: tide-table\ndescription: Compute tides.\n---\n\nRun scripts/tide.sh.\n"

// An entry is a file of an archive.
type entry struct {
	name, text string
	mode       fs.FileMode
}

func zipOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = f.Write([]byte(e.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(data []byte) (*folder, error) { return readFolder(bytes.NewReader(data), int64(len(data))) }

// A skill that could write outside of its folder, or that is not what it claims, is refused.
func TestHostileArchive(t *testing.T) {
	skill := entry{name: "SKILL.md", text: good}
	deep := strings.Repeat("d/", maxDepth) + "f"
	many := []entry{skill}
	for i := range MaxFiles {
		many = append(many, entry{name: fmt.Sprint("f", i)})
	}
	for name, tt := range map[string]struct {
		entries []entry
		want    string
	}{
		"no files":              {nil, "no SKILL.md"},
		"no SKILL.md":           {[]entry{{name: "README.md", text: good}}, "no SKILL.md"},
		"SKILL.md too deep":     {[]entry{{name: "a/b/SKILL.md", text: good}, {name: "a/x"}}, "no SKILL.md"},
		"two":                   {[]entry{skill, {name: "sub/skill.md", text: good}}, "2 files named SKILL.md"},
		"two by case":           {[]entry{skill, {name: "skill.md", text: good}}, "the same on some systems"},
		"dot dot":               {[]entry{skill, {name: "../x"}}, "'..'"},
		"dot dot in the middle": {[]entry{skill, {name: "a/../../x"}}, "'..'"},
		"dot dot at the end":    {[]entry{skill, {name: "a/.."}}, "'..'"},
		"absolute":              {[]entry{skill, {name: "/etc/cron.d/x"}}, "not relative"},
		"backslashes":           {[]entry{skill, {name: `..\..\x`}}, "backslash"},
		"empty part":            {[]entry{skill, {name: "a//b"}}, "empty part"},
		"control character":     {[]entry{skill, {name: "a\x1b[2J"}}, "control"},
		"NUL":                   {[]entry{skill, {name: "a\x00b"}}, "control"},
		"not UTF-8":             {[]entry{skill, {name: "a\xff"}}, "UTF-8"},
		"whiteout":              {[]entry{skill, {name: ".wh.SKILL.md"}}, "reserve"},
		"opaque whiteout":       {[]entry{skill, {name: "a/.wh..wh..opq"}}, "reserve"},
		"long part":             {[]entry{skill, {name: strings.Repeat("n", 256)}}, "longer than 255"},
		"long path":             {[]entry{skill, {name: strings.Repeat("nnn/", 130) + "x"}}, "longer than 512"},
		"deep":                  {[]entry{skill, {name: deep}}, "directories deep"},
		"link": {[]entry{skill, {name: "x", text: "/etc/shadow", mode: fs.ModeSymlink | 0o777}},
			"symbolic link"},
		"linked directory": {[]entry{skill, {name: "d", text: "/", mode: fs.ModeSymlink | 0o777},
			{name: "d/etc/x"}}, "symbolic link"},
		"device":                 {[]entry{skill, {name: "x", mode: fs.ModeDevice | 0o666}}, "neither a file"},
		"FIFO":                   {[]entry{skill, {name: "x", mode: fs.ModeNamedPipe | 0o666}}, "neither a file"},
		"same name":              {[]entry{skill, {name: "a"}, {name: "a"}}, "the same on some systems"},
		"same name by case":      {[]entry{skill, {name: "Run.sh"}, {name: "rUN.sh"}}, "the same on some systems"},
		"same directory by case": {[]entry{skill, {name: "A/x"}, {name: "a/y"}}, "the same on some systems"},
		"same name by form": {[]entry{skill, {name: "caf\u00e9"}, {name: "cafe\u0301"}},
			"the same on some systems"},
		"file and directory": {[]entry{skill, {name: "a"}, {name: "a/b"}}, "the same on some systems"},
		"many files":         {many, "more than 500 files"},
		"no front matter":    {[]entry{{name: "SKILL.md", text: "Do as I say."}}, "first line must be ---"},
		"open front matter":  {[]entry{{name: "SKILL.md", text: "---\nname: a\n"}}, "between two lines"},
		"no name":            {[]entry{{name: "SKILL.md", text: "---\ndescription: d\n---\n"}}, "no 'name'"},
		"no description":     {[]entry{{name: "SKILL.md", text: "---\nname: a\n---\n"}}, "no 'description'"},
		"a path as the name": {[]entry{{name: "SKILL.md", text: "---\nname: ../../etc\ndescription: d\n---\n"}},
			"is not valid"},
		"a long name": {[]entry{{name: "SKILL.md", text: "---\nname: " + strings.Repeat("n", 65) +
			"\ndescription: d\n---\n"}}, "is not valid"},
		"a list as the name": {[]entry{{name: "SKILL.md", text: "---\nname: [a]\ndescription: d\n---\n"}},
			"not valid YAML"},
		"two names": {[]entry{{name: "SKILL.md", text: "---\nname: a\nname: b\ndescription: d\n---\n"}},
			"not valid YAML"},
		"a long description": {[]entry{{name: "SKILL.md", text: "---\nname: a\ndescription: " +
			strings.Repeat("d", 1025) + "\n---\n"}}, "longer than 1024"},
		"an escaping description": {[]entry{{name: "SKILL.md", text: "---\nname: a\ndescription: \"\\e[2J\"\n---\n"}},
			"control characters"},
		"no text":   {[]entry{{name: "SKILL.md", text: "---\nname: \xff\n---\n"}}, "not UTF-8"},
		"YAML bomb": {[]entry{{name: "SKILL.md", text: yamlBomb()}}, "not valid YAML"},
		"large SKILL.md": {[]entry{{name: "SKILL.md", text: good + strings.Repeat("x", maxManifest)}},
			"SKILL.md is larger"},
		"large front matter": {[]entry{{name: "SKILL.md", text: "---\nname: a\ndescription: d\nx: " +
			strings.Repeat("x", maxFrontMatter) + "\n---\n"}}, "front matter of its SKILL.md is larger"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := read(zipOf(t, tt.entries...))
			if _, said := err.(invalid); !said || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, %v, want an error with %q", f, err, tt.want)
			}
		})
	}
}

func yamlBomb() string {
	var b strings.Builder
	b.WriteString("---\na0: &a0 [x, x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	b.WriteString("name: *a29\ndescription: *a29\n---\n")
	return b.String()
}

// Bombs are refused before they unpack.
func TestArchiveBomb(t *testing.T) {
	zeros := strings.Repeat("\x00", 1<<20)
	t.Run("a large file", func(t *testing.T) {
		_, err := read(zipOf(t, entry{name: "SKILL.md", text: good}, entry{name: "x", text: strings.Repeat(zeros, 26)}))
		wantInvalid(t, err, "larger than 26214400 bytes")
	})
	t.Run("many large files", func(t *testing.T) {
		entries := []entry{{name: "SKILL.md", text: good}}
		for i := range 7 {
			entries = append(entries, entry{name: fmt.Sprint("x", i), text: strings.Repeat(zeros, 20)})
		}
		_, err := read(zipOf(t, entries...))
		wantInvalid(t, err, "more than 134217728 bytes together")
	})
	t.Run("a size that lies", func(t *testing.T) {
		data := zipOf(t, entry{name: "SKILL.md", text: good}, entry{name: "x", text: zeros})
		at := bytes.LastIndex(data, []byte("PK\x01\x02"))
		binary.LittleEndian.PutUint32(data[at+24:], 10) // the uncompressed size in the list of files
		_, err := read(data)
		wantInvalid(t, err, "damaged, or larger")
	})
	t.Run("a wrong checksum", func(t *testing.T) {
		data := zipOf(t, entry{name: "SKILL.md", text: good}, entry{name: "x", text: zeros})
		data[bytes.LastIndex(data, []byte("PK\x01\x02"))+16] ^= 1
		_, err := read(data)
		wantInvalid(t, err, "damaged")
	})
	t.Run("a long list of files that claims to be short", func(t *testing.T) {
		one := zipOf(t, entry{name: "f"})
		at := bytes.Index(one, []byte("PK\x01\x02"))
		end := bytes.Index(one, []byte("PK\x05\x06"))
		data := bytes.Clone(one[:at])
		data = append(data, bytes.Repeat(one[at:end], 1<<18)...)
		tail := bytes.Clone(one[end:])
		binary.LittleEndian.PutUint16(tail[8:], 0)
		binary.LittleEndian.PutUint16(tail[10:], 0) // 2^18 modulo 2^16
		binary.LittleEndian.PutUint32(tail[16:], uint32(at))
		binary.LittleEndian.PutUint32(tail[12:], uint32(len(data)-at))
		data = append(data, tail...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read(data)
		runtime.ReadMemStats(&after)
		wantInvalid(t, err, "lists more than")
		if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
			t.Errorf("reading an archive of %d bytes allocated %d bytes", len(data), n)
		}
	})
	t.Run("encrypted", func(t *testing.T) {
		data := zipOf(t, entry{name: "SKILL.md", text: good})
		data[bytes.LastIndex(data, []byte("PK\x01\x02"))+8] |= 1
		_, err := read(data)
		wantInvalid(t, err, "encrypted")
	})
	t.Run("cut", func(t *testing.T) {
		data := zipOf(t, entry{name: "SKILL.md", text: good})
		for n := range data {
			if _, err := read(data[:n]); err == nil {
				t.Fatalf("%d of %d bytes were accepted", n, len(data))
			}
		}
	})
}

func wantInvalid(t *testing.T, err error, want string) {
	t.Helper()
	if _, said := err.(invalid); !said || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestFolder(t *testing.T) {
	for name, prefix := range map[string]string{"with a top folder": "any_name/", "without": ""} {
		t.Run(name, func(t *testing.T) {
			f, err := read(zipOf(t, entry{name: prefix + "scripts/"}, entry{name: prefix + "scripts/tide.sh",
				text: "#!/bin/sh\n"}, entry{name: prefix + "skill.MD", text: "\ufeff" + strings.ReplaceAll(good, "\n",
				"\r\n")},
				entry{name: prefix + "scripts/tool", mode: 0o755}, entry{name: prefix + "data/.DS_Store"},
				entry{name: "__MACOSX/" + prefix + "._SKILL.md"}))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, file := range f.files {
				got = append(got, fmt.Sprint(file.path, " ", file.executable))
			}
			if want := "[scripts/tide.sh true scripts/tool true skill.MD false]"; fmt.Sprint(got) != want ||
				f.Name != "tide-table" || f.Description != "Compute tides." {
				t.Errorf("got %v, %+v, want %s", got, f.manifest, want)
			}
		})
	}
}

// Any archive is refused, or has only paths in its folder.
func FuzzFolder(f *testing.F) {
	f.Add(zipOf(f, entry{name: "SKILL.md", text: good}, entry{name: "a/b", text: "x"}))
	f.Add(zipOf(f, entry{name: "x/SKILL.md", text: good}, entry{name: "x/../y"}))
	f.Add(zipOf(f, entry{name: "SKILL.md", text: good}, entry{name: "l", mode: fs.ModeSymlink | 0o777}))
	f.Fuzz(func(t *testing.T, data []byte) {
		folder, err := read(data)
		if err != nil {
			return
		}
		if checkName(folder.Name) != nil || len(folder.files) == 0 || len(folder.files) > MaxFiles {
			t.Errorf("got %+v", folder)
		}
		for _, file := range folder.files {
			if !fs.ValidPath(file.path) || strings.Contains(file.path, `\`) || strings.HasPrefix(file.path, ".wh.") ||
				strings.Contains(file.path, "/.wh.") {
				t.Errorf("got path %q", file.path)
			}
		}
	})
}

// Any front matter is refused, or names a skill.
func FuzzManifest(f *testing.F) {
	f.Add(good)
	f.Add("---\n---\n")
	f.Add("---\nname: &a a\ndescription: *a\n---")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseManifest([]byte(text)); err == nil && (!nameForm.MatchString(m.Name) || m.Description == "") {
			t.Errorf("got %+v", m)
		}
	})
}
