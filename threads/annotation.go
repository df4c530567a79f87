package threads

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// An Annotation cites a file in a text. Clients replace its Text, which is in the text, by
// what they show instead.
type Annotation struct {
	Index        *int           `json:"index,omitempty"` // in a piece of a stream: of the annotation in the part
	Type         string         `json:"type"`            // file_citation or file_path
	Text         string         `json:"text"`
	FileCitation *FileReference `json:"file_citation,omitempty"` // of a file that was searched
	FilePath     *FileReference `json:"file_path,omitempty"`     // of a file that the code interpreter made
	StartIndex   int            `json:"start_index"`             // of Text, in characters
	EndIndex     int            `json:"end_index"`
}

// A FileReference names an uploaded file, or one that the server has saved.
type FileReference struct {
	FileID berth.FileID `json:"file_id"`
}

// A citation is an annotation of a response's text.
type citation struct {
	Type        string            `json:"type"`
	FileID      string            `json:"file_id"` // of an uploaded file, or of a container's
	ContainerID berth.ContainerID `json:"container_id"`
	Filename    string            `json:"filename"`
	Index       int               `json:"index"` // of a file_citation, in the text without marks
	StartIndex  int               `json:"start_index"`
	EndIndex    int               `json:"end_index"`
}

const (
	fileCitation          = "file_citation"
	containerFileCitation = "container_file_citation"
)

// citationsOf returns the citations of files in a part of a response's message.
func citationsOf(c berth.Content) []citation {
	var all []citation
	for _, raw := range c.Annotations {
		var a citation
		if json.Unmarshal(raw, &a) == nil && (a.Type == fileCitation || a.Type == containerFileCitation) {
			all = append(all, a)
		}
	}
	return all
}

// cite returns the annotation of a file_citation whose mark is added at a place in a text.
// item is the index of the message in its response, n that of the citation in the text.
func cite(a citation, item, n, at int) Annotation {
	mark := fmt.Sprintf("【%d:%d†source】", item, n)
	return Annotation{Type: fileCitation, Text: mark, FileCitation: &FileReference{berth.FileID(a.FileID)},
		StartIndex: at, EndIndex: at + utf8.RuneCountInString(mark)}
}

// annotated returns a text of a response as the Assistants API shows it: with a mark where
// it cites a file. item is the index of the message in the output of the response id.
func (r *Record) annotated(id berth.ResponseID, item int, c berth.Content) *Text {
	text := []rune(c.Text)
	t := &Text{Annotations: []Annotation{}}
	var value []rune
	from := 0 // of text that is not in value yet
	all := citationsOf(c)
	for _, a := range all {
		if a.Type != fileCitation || a.Index < from || a.Index > len(text) {
			continue
		}
		value, from = append(value, text[from:a.Index]...), a.Index
		mark := cite(a, item, len(t.Annotations), len(value))
		value = append(value, []rune(mark.Text)...)
		t.Annotations = append(t.Annotations, mark)
	}
	t.Value = string(append(value, text[from:]...))
	marks := t.Annotations
	for _, a := range all {
		file := citedID(id, a.FileID)
		if a.Type != containerFileCitation || !r.Files[file] || a.StartIndex < 0 || a.EndIndex < a.StartIndex ||
			a.EndIndex > len(text) {
			continue
		}
		start := a.StartIndex + shift(all, marks, a.StartIndex)
		t.Annotations = append(t.Annotations, Annotation{Type: "file_path", Text: string(text[a.StartIndex:a.EndIndex]),
			FilePath:   &FileReference{file},
			StartIndex: start, EndIndex: start + a.EndIndex - a.StartIndex})
	}
	return t
}

// shift returns the length of the marks before a place in the text without marks.
func shift(all []citation, marks []Annotation, place int) int {
	n, length := 0, 0
	for _, a := range all {
		if a.Type == fileCitation && a.Index <= place && n < len(marks) {
			length += marks[n].EndIndex - marks[n].StartIndex
			n++
		}
	}
	return length
}

// withoutMarks returns the text without the marks of its citations, which mean nothing to a
// model.
func (t *Text) withoutMarks() string {
	text := []rune(t.Value)
	for i := len(t.Annotations) - 1; i >= 0; i-- {
		a := t.Annotations[i]
		if a.Type == fileCitation && 0 <= a.StartIndex && a.StartIndex <= a.EndIndex && a.EndIndex <= len(text) {
			text = append(text[:a.StartIndex:a.StartIndex], text[a.EndIndex:]...)
		}
	}
	return string(text)
}
