package codeinterpreter

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/guest/jupyter"
)

// Bounds on the outputs of a call besides its text. What the container sends is untrusted.
const (
	maxImages  = 20
	maxImage   = 2 << 20 // bytes of base64
	maxResults = 512 << 10
)

// images are the media types that outputs show as images, the preferred ones first.
var images = []string{"image/png", "image/jpeg", "image/gif"}

// outputs collects the outputs of a call in the order in which the code made them.
type outputs struct {
	list      []berth.CodeInterpreterOutput
	text      strings.Builder // of the logs at the end of list
	room      int             // characters of text that still fit
	tail      []rune          // the end of the text that does not fit
	skipped   int             // characters between
	images    int
	results   []map[string]json.RawMessage
	size      int // bytes of results
	outcome   string
	restarted bool
	files     []berth.FileChange
	moreFiles int
}

func newOutputs(limit int) *outputs {
	return &outputs{list: []berth.CodeInterpreterOutput{}, room: limit}
}

// add adds an event of the kernel.
func (o *outputs) add(e jupyter.Event) {
	switch e.Type {
	case jupyter.Result, jupyter.Display:
		o.result(e)
	case jupyter.Restarted:
		o.restarted = true
	case jupyter.Failure:
		o.outcome = outcomeError
		o.line(e.Plain())
	case jupyter.Died:
		o.outcome = outcomeDied
		o.line(e.Plain())
		o.line("Variables and imports are gone; files are kept. The next call starts the kernel again.\n")
	default: // stream, interrupted, notice
		if e.Type != jupyter.Stream {
			o.line("")
		}
		o.write(e.Plain())
	}
}

// end adds how the code ended.
func (o *outputs) end(ev guest.ShellEvent) {
	switch {
	case o.outcome == outcomeDied:
	case ev.Kind == guest.ShellTimeout: // the interrupt is an exception too
		o.outcome = outcomeTimeout
	case o.outcome != "":
	case ev.ExitCode == 1:
		o.outcome = outcomeError
	case ev.ExitCode != 0:
		o.outcome = outcomeFailed
	}
}

// fail adds a message about a call that could not run, or not to its end.
func (o *outputs) fail(outcome, message string) {
	o.outcome = outcome
	o.line(message + "\n")
}

// result adds a value or what the code displays: an image, or else its plain text. Other
// forms of it are kept beside.
func (o *outputs) result(e jupyter.Event) {
	shown := false
	for _, media := range images {
		if data, ok := e.String(media); ok && !shown {
			shown = o.image(media, data)
		}
	}
	if text, ok := e.String("text/plain"); ok && !shown {
		o.line(jupyter.Plain(text))
		o.line("")
	}
	rich := maps.Clone(e.Data)
	maps.DeleteFunc(rich, func(media string, value json.RawMessage) bool {
		return media == "text/plain" || strings.HasPrefix(media, "image/") && media != "image/svg+xml" ||
			o.size+len(value) > maxResults
	})
	for _, value := range rich {
		o.size += len(value)
	}
	if len(rich) > 0 && o.size <= maxResults {
		o.results = append(o.results, rich)
	}
}

// image adds an image, if the data is one and there is room for it.
func (o *outputs) image(media, data string) bool {
	data = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == ' ' {
			return -1
		}
		return r
	}, data)
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(data) > maxImage || http.DetectContentType(content) != media {
		return false
	}
	if o.images++; o.images > maxImages {
		o.line(fmt.Sprintf("[an image beyond the first %d was left out]\n", maxImages))
		return true
	}
	o.closeText()
	o.list = append(o.list, berth.CodeInterpreterOutput{Type: "image", URL: "data:" + media + ";base64," + data})
	return true
}

// line adds text that starts a line.
func (o *outputs) line(text string) {
	if s := o.text.String(); s != "" && !strings.HasSuffix(s, "\n") {
		o.write("\n")
	}
	o.write(text)
}

// write adds text: the first half of the limit, and later the last.
func (o *outputs) write(text string) {
	n := utf8.RuneCountInString(text)
	if o.tail == nil && n <= o.room {
		o.text.WriteString(text)
		o.room -= n
		return
	}
	rest := []rune(text)
	if o.tail == nil {
		o.text.WriteString(string(rest[:o.room]))
		rest, o.room = rest[o.room:], 0
	}
	o.tail = append(o.tail, rest...)
	if over := len(o.tail) - maxTail; over > 0 {
		o.tail = o.tail[over:]
		o.skipped += over
	}
}

// maxTail is the number of characters of the end of a text that is too long.
const maxTail = 4 << 10

// closeText adds the text so far to the list.
func (o *outputs) closeText() {
	if o.text.Len() > 0 {
		o.list = append(o.list, berth.CodeInterpreterOutput{Type: "logs", Logs: strings.TrimSuffix(o.text.String(),
			"\n")})
	}
	o.text.Reset()
}

// finish adds the end of a text that is too long.
func (o *outputs) finish() {
	if o.tail != nil {
		if o.skipped > 0 {
			fmt.Fprintf(&o.text, "\n[%d characters were left out]\n", o.skipped)
		}
		o.text.WriteString(string(o.tail))
	}
	o.closeText()
}

// extra returns what Berth adds to the item, or nil.
func (o *outputs) extra(mark berth.CallBerth) *berth.CodeInterpreterBerth {
	extra := &berth.CodeInterpreterBerth{CallBerth: mark, Outcome: o.outcome, Restarted: o.restarted,
		Files: o.files, MoreFiles: o.moreFiles, Results: o.results}
	if reflect.ValueOf(*extra).IsZero() {
		return nil
	}
	return extra
}
