package skills

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The limits of a skill. Those of files, of one file and of the archive are OpenAI's.
const (
	MaxFiles     = 500
	MaxFileBytes = 25 << 20
	MaxZipBytes  = 50 << 20
	MaxBytes     = 128 << 20 // of all files
	maxPath      = 512       // bytes of a path
	maxDepth     = 16        // directories of a path

	// maxDirectory bounds the bytes read of an archive to list its files. An archive of few
	// bytes can list very many.
	maxDirectory = 2 << 20
)

// A folder is the validated content of a skill.
type folder struct {
	manifest
	files []file // sorted by path
	bytes int64
}

// A file is a file of a skill.
type file struct {
	path       string // in the folder
	size       int64
	executable bool
	open       func() (io.ReadCloser, error)
}

// readFolder reads and validates an archive. Its errors that do not come from r say in words for
// the client the skill's fault; see invalid.
func readFolder(r io.ReaderAt, size int64) (*folder, error) {
	source := &boundedReader{r: r, left: maxDirectory}
	archive, err := zip.NewReader(source, size)
	switch {
	case source.failed != nil:
		return nil, source.failed
	case source.over:
		return nil, invalidf("it lists more than %d files", MaxFiles)
	case err != nil && !errors.Is(err, zip.ErrInsecurePath):
		return nil, invalidf("it is not a valid zip archive")
	}
	source.free = true
	f := &folder{}
	for _, entry := range archive.File {
		if err := f.add(entry); err != nil {
			return nil, err
		}
	}
	f.strip()
	if err := f.check(); err != nil {
		return nil, err
	}
	if err := f.verify(); err != nil {
		if source.failed != nil {
			return nil, source.failed
		}
		return nil, err
	}
	return f, nil
}

// add adds an entry of an archive. It leaves out directories and the notes that macOS adds.
func (f *folder) add(entry *zip.File) error {
	name := entry.Name
	isDir := strings.HasSuffix(name, "/") || entry.Mode().IsDir()
	name = strings.TrimSuffix(name, "/")
	if err := checkPath(name); err != nil {
		return err
	}
	switch kind := entry.Mode().Type(); {
	case kind == fs.ModeSymlink:
		return invalidf("%.200q is a symbolic link; a skill has only files and directories", name)
	case kind != 0 && kind != fs.ModeDir:
		return invalidf("%.200q is neither a file nor a directory", name)
	case entry.Flags&1 != 0:
		return invalidf("%.200q is encrypted", name)
	case isDir && entry.UncompressedSize64 > 0:
		return invalidf("%.200q is a directory with content", name)
	case isDir, strings.HasPrefix(name, "__MACOSX/"), path.Base(name) == ".DS_Store":
		return nil
	case len(f.files) == MaxFiles:
		return invalidf("it has more than %d files", MaxFiles)
	case entry.UncompressedSize64 > MaxFileBytes:
		return invalidf("%.200q is larger than %d bytes", name, MaxFileBytes)
	}
	size := int64(entry.UncompressedSize64)
	if f.bytes += size; f.bytes > MaxBytes {
		return invalidf("its files have more than %d bytes together", MaxBytes)
	}
	f.files = append(f.files, file{path: name, size: size, executable: entry.Mode()&0o111 != 0, open: entry.Open})
	return nil
}

// checkPath returns an error unless a path is relative, stays in its folder, and has the same
// meaning on every system and in a layer.
func checkPath(name string) error {
	wrong := func(why string) error { return invalidf("the path %.200q %s", name, why) }
	switch {
	case name == "", strings.HasPrefix(name, "/"):
		return wrong("is not relative")
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || r == '\\' || r == utf8.RuneError
	}):
		return wrong("contains a backslash or control characters, or is not UTF-8")
	case len(name) > maxPath:
		return wrong(fmt.Sprintf("is longer than %d bytes", maxPath))
	}
	elems := strings.Split(name, "/")
	if len(elems) > maxDepth {
		return wrong(fmt.Sprintf("is more than %d directories deep", maxDepth))
	}
	for _, elem := range elems {
		switch {
		case elem == "", elem == ".", elem == "..":
			return wrong("has an empty part, '.' or '..'")
		case len(elem) > 255:
			return wrong("has a part that is longer than 255 bytes")
		case strings.HasPrefix(elem, ".wh."):
			return wrong("has a part that starts with '.wh.', which layers reserve")
		}
	}
	return nil
}

// strip removes the folder's own name from the paths if all files have it.
func (f *folder) strip() {
	if len(f.files) == 0 {
		return
	}
	top, _, _ := strings.Cut(f.files[0].path, "/")
	if slices.ContainsFunc(f.files, func(f file) bool { return !strings.HasPrefix(f.path, top+"/") }) {
		return
	}
	for i := range f.files {
		f.files[i].path = strings.TrimPrefix(f.files[i].path, top+"/")
	}
}

// check sorts the files and returns an error unless their paths differ on every system and one is the
// manifest.
func (f *folder) check() error {
	slices.SortFunc(f.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	kinds, manifests, atTop := map[string]string{}, 0, false
	for _, file := range f.files {
		for at := file.path; at != "."; at = path.Dir(at) {
			kind := at + "/" // the path as a directory
			if at == file.path {
				kind = at
			}
			// A file and a path below it fold to the same key too.
			key := fold(at)
			if other, taken := kinds[key]; taken && (other != kind || kind == file.path) {
				return invalidf("the paths %.200q and %.200q are the same on some systems", strings.TrimSuffix(other,
					"/"), at)
			}
			kinds[key] = kind
		}
		if strings.EqualFold(path.Base(file.path), manifestName) {
			manifests++
			atTop = atTop || !strings.Contains(file.path, "/")
		}
	}
	switch {
	case !atTop:
		return invalidf("it has no SKILL.md in its top folder")
	case manifests > 1:
		return invalidf("it has %d files named SKILL.md; a skill has exactly one", manifests)
	}
	return nil
}

// fold returns the same key for paths that file systems without case or with normal forms
// confuse.
func fold(name string) string {
	return norm.NFC.String(strings.ToLower(strings.ToUpper(norm.NFKC.String(name))))
}

// verify reads all files, so that each has the size and the checksum that the archive claims, and
// parses the manifest.
func (f *folder) verify() error {
	for i, file := range f.files {
		r, err := file.open()
		if err != nil {
			return invalidf("%.200q cannot be unpacked: %v", file.path, err)
		}
		head := &head{most: 2}
		if strings.EqualFold(file.path, manifestName) {
			head.most = maxManifest + 1
		}
		n, err := io.Copy(head, io.LimitReader(r, file.size+1))
		r.Close()
		if err != nil || n != file.size {
			return invalidf("%.200q is damaged, or larger than the archive says", file.path)
		}
		f.files[i].executable = file.executable || strings.HasPrefix(string(head.text), "#!")
		if head.most == 2 {
			continue
		}
		if len(head.text) > maxManifest {
			return invalidf("its SKILL.md is larger than %d bytes", maxManifest)
		}
		m, err := parseManifest(head.text)
		if err != nil {
			return invalidf("%w", err)
		}
		f.manifest = *m
	}
	return nil
}

// A head stores the start of the bytes written to it.
type head struct {
	text []byte
	most int
}

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), h.most-len(h.text))]...)
	return len(p), nil
}

// A boundedReader reads at most left bytes of r until it is free. It stores an error of r, which is
// not the client's fault.
type boundedReader struct {
	r      io.ReaderAt
	left   int64
	free   bool
	over   bool // more than left was wanted
	failed error
}

func (b *boundedReader) ReadAt(p []byte, at int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 && !b.free {
		b.over = true
		return 0, errors.New("the list of files is too long")
	}
	n, err := b.r.ReadAt(p, at)
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}

// invalid is an error of a skill, in words for the client.
type invalid struct{ err error }

func (e invalid) Error() string { return e.err.Error() }

func invalidf(format string, args ...any) error { return invalid{fmt.Errorf(format, args...)} }
