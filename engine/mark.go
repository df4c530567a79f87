package engine

import (
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// maxMark bounds a mark in bytes. A longer text between its brackets is not one.
const maxMark = 400

// A markReader finds the marks of citables in a text that arrives in pieces, and separates
// them from it. The zero value knows no citables and returns all text in one piece.
type markReader struct {
	citables map[string]tool.Citable // by markKey
	held     string                  // the start of what may become a mark
}

// citablesOf returns the citables in a response's context by their marks, or nil.
func citablesOf(kinds *tool.Registry, contexts ...[]berth.Item) map[string]tool.Citable {
	var all map[string]tool.Citable
	for _, items := range contexts {
		for _, it := range items {
			for _, s := range kinds.Citables(it) {
				if all == nil {
					all = map[string]tool.Citable{}
				}
				all[markKey(s.Mark)] = s
			}
		}
	}
	return all
}

// markKey returns the part of a mark that identifies its citable. Models sometimes change
// the title after the dagger, or leave it out.
func markKey(mark string) string {
	key := strings.TrimSuffix(strings.TrimPrefix(mark, tool.MarkStart), tool.MarkEnd)
	key, _, _ = strings.Cut(key, "†")
	return strings.TrimSpace(key)
}

// A markedText is text, and then the citation of a citable or nil.
type markedText struct {
	text    string
	citable *tool.Citable
}

// write adds text. It returns the text that has no unfinished mark.
func (r *markReader) write(text string) []markedText {
	if r.citables == nil {
		return []markedText{{text: text}}
	}
	var out []markedText
	var plain strings.Builder
	text, r.held = r.held+text, ""
	for text != "" {
		start := strings.Index(text, tool.MarkStart)
		if start < 0 {
			plain.WriteString(text)
			break
		}
		plain.WriteString(text[:start])
		text = text[start:]
		n := strings.Index(text, tool.MarkEnd)
		again := strings.Index(text[len(tool.MarkStart):], tool.MarkStart)
		switch {
		case n >= 0 && (again < 0 || n < again+len(tool.MarkStart)):
			n += len(tool.MarkEnd)
			if s, ok := r.citables[markKey(text[:n])]; ok {
				out = append(out, markedText{plain.String(), &s})
				plain.Reset()
			} else {
				plain.WriteString(text[:n])
			}
		case n < 0 && again < 0 && len(text) <= maxMark:
			r.held, n = text, len(text)
		default:
			n = len(tool.MarkStart)
			plain.WriteString(text[:n])
		}
		text = text[n:]
	}
	if plain.Len() > 0 {
		out = append(out, markedText{text: plain.String()})
	}
	return out
}

// rest returns the text that was held for a mark that did not end.
func (r *markReader) rest() string {
	text := r.held
	r.held = ""
	return text
}
