package engine

import (
	"cmp"
	"context"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// Bounds on citations.
const (
	maxCitations = 100             // in one part
	citeTime     = 5 * time.Second // for listing the container's files
)

// linkScheme is the optional scheme of a path that the model links to.
const linkScheme = "sandbox:"

// cite finds the container files that the open text mentions, so that a client can fetch
// them without parsing the text. If the files cannot be listed in time, the text has no
// citations.
func (w *turnWriter) cite(ctx context.Context) {
	m, r := w.message, w.run
	if m == nil || m.kind != "output_text" || !m.whole.IsZero() || r.record.Container == "" {
		return
	}
	text := m.text.String()
	if !strings.Contains(text, berth.WorkDir+"/") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, citeTime)
	defer cancel()
	files, err := r.engine.Containers.Files(ctx, r.record.Project, r.record.Container)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return // no call has used the container
	}
	if err != nil {
		r.log().Warn("failed to cite files", "container", r.record.Container, "err", err)
		return
	}
	m.citations = citations(text, files)
}

// citations returns the mentions of files in a text, in the order of the text.
func citations(text string, files []*berth.ContainerFile) []berth.ContainerFileCitation {
	byPath := make(map[string]*berth.ContainerFile, len(files))
	for _, f := range files {
		byPath[f.Path] = f
	}
	longest := slices.SortedFunc(slices.Values(files), func(a, b *berth.ContainerFile) int {
		return cmp.Compare(len(b.Path), len(a.Path))
	})
	var found []berth.ContainerFileCitation
	for at := 0; len(found) < maxCitations; {
		next := strings.Index(text[at:], berth.WorkDir+"/")
		if next < 0 {
			break
		}
		start := at + next
		f, length := mentioned(text[start:], longest, byPath)
		if f == nil {
			at = start + len(berth.WorkDir)
			continue
		}
		at = start + length
		if strings.HasSuffix(text[:start], linkScheme) {
			start -= len(linkScheme)
		}
		startRune := utf8.RuneCountInString(text[:start])
		found = append(found, berth.ContainerFileCitation{Type: "container_file_citation", ContainerID: f.ContainerID,
			FileID:   f.ID,
			Filename: path.Base(f.Path), StartIndex: startRune, EndIndex: startRune +
				utf8.RuneCountInString(text[start:at])})
	}
	return found
}

// mentioned returns the file whose path is at the start of a text, and the length of the
// mention in bytes. The path may be escaped as in the target of a link. It returns nil if
// there is no such file.
func mentioned(text string, longest []*berth.ContainerFile,
	byPath map[string]*berth.ContainerFile) (*berth.ContainerFile, int) {
	for _, f := range longest {
		if strings.HasPrefix(text, f.Path) && endsName(text[len(f.Path):]) {
			return f, len(f.Path)
		}
	}
	target := text
	if i := strings.IndexFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune("()<>[]\"'`", r)
	}); i >= 0 {
		target = text[:i]
	}
	if name, err := url.PathUnescape(target); err == nil && byPath[name] != nil {
		return byPath[name], len(target)
	}
	return nil, 0
}

// endsName reports whether a file name can end before rest. "a.txt.gz" does not mention
// "a.txt", but "a.txt." does.
func endsName(rest string) bool {
	rest = strings.TrimLeft(rest, ".")
	r, size := utf8.DecodeRuneInString(rest)
	return size == 0 || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-/", r)
}
