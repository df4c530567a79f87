package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth/guest/jupyter"
)

// Bounds on the recorded output of a call, in bytes. Together they are below what a
// spool sends without a gap.
const (
	kernelHead = 1 << 20  // the start of the text
	kernelTail = 64 << 10 // the end of the text, if it is longer
	kernelData = 5 << 19  // results
	kernelMany = 2000     // events
)

// A kernelOutput records the output of a call as lines of JSON.
type kernelOutput struct {
	to      *spool
	text    int // bytes recorded
	data    int
	events  int
	tail    []byte
	dropped int  // bytes of text between the start and the tail
	full    bool // results were left out
}

func newKernelOutput(to *spool) *kernelOutput { return &kernelOutput{to: to} }

// message records what a message of the kernel means.
func (o *kernelOutput) message(m jupyter.Message) {
	for _, ev := range jupyter.Events(m) {
		switch ev.Type {
		case jupyter.Result, jupyter.Display:
			o.results(ev)
		default:
			o.print(ev)
		}
	}
}

// print records text up to kernelHead, and later the end of it.
func (o *kernelOutput) print(ev jupyter.Event) {
	rest := ev.Text
	if o.dropped == 0 && o.tail == nil && o.events < kernelMany {
		n := min(len(ev.Text), kernelHead-o.text)
		for n > 0 && n < len(ev.Text) && !utf8.RuneStart(ev.Text[n]) {
			n--
		}
		if ev.Text, rest = rest[:n], rest[n:]; n > 0 {
			o.text += n
			o.write(ev)
		}
		if rest == "" {
			return
		}
	}
	o.tail = append(o.tail, rest...)
	if over := len(o.tail) - kernelTail; over > kernelTail {
		o.tail = append([]byte{}, o.tail[over:]...)
		o.dropped += over
	}
}

func (o *kernelOutput) results(ev jupyter.Event) {
	size := 0
	for name, value := range ev.Data {
		size += len(name) + len(value)
	}
	if o.data+size > kernelData || o.events >= kernelMany {
		o.full = true
		return
	}
	o.data += size
	o.write(ev)
}

// finish records the end of text that is too long, and what was left out.
func (o *kernelOutput) finish() {
	if over := len(o.tail) - kernelTail; over > 0 {
		o.tail, o.dropped = o.tail[over:], o.dropped+over
	}
	if o.dropped > 0 {
		o.write(jupyter.Event{Type: jupyter.Notice, Text: fmt.Sprintf("\n[%d bytes of output were left out]\n",
			o.dropped)})
	}
	if len(o.tail) > 0 {
		for len(o.tail) > 0 && !utf8.RuneStart(o.tail[0]) {
			o.tail = o.tail[1:]
		}
		o.write(jupyter.Event{Type: jupyter.Stream, Text: strings.ToValidUTF8(string(o.tail), "\uFFFD")})
	}
	if o.full {
		o.write(jupyter.Event{Type: jupyter.Notice,
			Text: "\n[more results were left out: their sizes exceed the limit of a call]\n"})
	}
}

func (o *kernelOutput) write(ev jupyter.Event) {
	o.events++
	line, err := json.Marshal(ev)
	if err != nil {
		return // a message of the kernel is valid JSON
	}
	_, _ = o.to.Write(append(line, '\n'))
}
