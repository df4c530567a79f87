package engine

import (
	"cmp"
	"context"
	"encoding/json"
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
	citeTime     = 5 * time.Second // for looking what is in the container
)

// linkScheme may stand before a path that the model links to.
const linkScheme = "sandbox:"

// cite finds the files of the container that the open text speaks of, so that a
// client can fetch them without reading the text. Files that cannot be looked up
// are not cited; the answer does not wait for them.
func (s *speech) cite(ctx context.Context) {
	m, r := s.message, s.run
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
	if err != nil {
		r.log().Warn("the files that an answer speaks of were not cited", "container", r.record.Container, "err", err)
		return
	}
	m.citations = citations(text, files)
}

// citations returns the mentions of files in a text, in its order.
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
		begin := at + next
		f, length := mentioned(text[begin:], longest, byPath)
		if f == nil {
			at = begin + len(berth.WorkDir)
			continue
		}
		at = begin + length
		if strings.HasSuffix(text[:begin], linkScheme) {
			begin -= len(linkScheme)
		}
		start := utf8.RuneCountInString(text[:begin])
		found = append(found, berth.ContainerFileCitation{Type: "container_file_citation", ContainerID: f.ContainerID, FileID: f.ID,
			Filename: path.Base(f.Path), StartIndex: start, EndIndex: start + utf8.RuneCountInString(text[begin:at])})
	}
	return found
}

// mentioned returns the file whose path the text begins with, as it is or as a
// link's target is written, and how long the mention is.
func mentioned(text string, longest []*berth.ContainerFile, byPath map[string]*berth.ContainerFile) (*berth.ContainerFile, int) {
	for _, f := range longest {
		if strings.HasPrefix(text, f.Path) && endsName(text[len(f.Path):]) {
			return f, len(f.Path)
		}
	}
	target := text
	if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("()<>[]\"'`", r) }); i >= 0 {
		target = text[:i]
	}
	if name, err := url.PathUnescape(target); err == nil && byPath[name] != nil {
		return byPath[name], len(target)
	}
	return nil, 0
}

// endsName reports whether a file's name can end where rest begins: "a.txt" is not
// mentioned by "a.txt.gz", but it is by "a.txt.".
func endsName(rest string) bool {
	rest = strings.TrimLeft(rest, ".")
	r, size := utf8.DecodeRuneInString(rest)
	return size == 0 || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-/", r)
}

// cited tells the citations of the open part and adds them to it.
func (m *openMessage) cited(part *berth.Content) []berth.Event {
	var events []berth.Event
	for i, c := range m.citations {
		raw, _ := json.Marshal(c) // strings and numbers always marshal
		part.Annotations = append(part.Annotations, raw)
		events = append(events, m.event(berth.Event{Type: berth.EventAnnotationAdded, AnnotationIndex: &i, Annotation: raw}))
	}
	m.citations = nil
	return events
}
