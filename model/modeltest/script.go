// Package modeltest is the suite of conversations that every provider must pass,
// and the doubles of vendors that it is run against, over HTTP.
package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A Script says what a double answers to its request number n, counted from 0. It
// may be called by several goroutines at once.
type Script func(n int, heard *Heard) Turn

// A Turn is what a double answers to one request.
type Turn struct {
	Steps   []Step   // what it says, in order
	Refusal *Refusal // an error it answers instead
}

// A Step is a model.Delta, which the double says in its vendor's words, or one of
// Wait, Raw, Malformed, Mistyped, Fault and Cut. An answer without a model.Finish ends
// without the vendor's end mark.
type Step any

type (
	// Wait holds the answer back until the channel is closed or the client leaves.
	Wait <-chan struct{}

	// Raw is bytes of the body as they stand.
	Raw string

	// Malformed is an event that cannot be read.
	Malformed struct{}

	// Mistyped is an event that says something in a field of another type than the
	// vendor documents, beside others that do not matter.
	Mistyped struct{}

	// Fault is an error in the middle of the answer, in the vendor's form.
	Fault struct {
		Code    string
		Message string
	}

	// Cut breaks the connection.
	Cut struct{}

	// Sealed is reasoning of which the vendor shows nothing but what it needs back.
	Sealed struct{}
)

// A Refusal is an error as an HTTP status, in the vendor's form.
type Refusal struct {
	Status  int
	Code    string
	Message string
	Header  http.Header // such as Retry-After
	Body    string      // instead of the vendor's form
}

// Say returns a turn of the steps.
func Say(steps ...Step) Turn { return Turn{Steps: steps} }

// Play answers with one turn after the other. What is asked after the last is refused.
func Play(turns ...Turn) Script {
	return func(n int, _ *Heard) Turn {
		if n < len(turns) {
			return turns[n]
		}
		return Turn{Refusal: &Refusal{Status: http.StatusInternalServerError, Message: "the script is over"}}
	}
}

// Always answers every request with the same turn.
func Always(turn Turn) Script {
	return func(int, *Heard) Turn { return turn }
}

// Heard is a request as the vendor understood it, in no vendor's words.
type Heard struct {
	Model             string
	System            string // instructions, and what else is said before the first turn
	Messages          []Message
	Tools             []berth.FunctionTool
	ToolChoice        model.ToolChoice // Mode is empty where nothing was said
	ParallelToolCalls bool
	MaxOutputTokens   int
	Temperature       *float64
	TopP              *float64
	Stop              []string
	Logprobs          bool
	TopLogprobs       int
	Format            json.RawMessage // as in Responses' text.format; nil is text
	Effort            string
	User              string

	Body   json.RawMessage // as it came
	Header http.Header
}

// A Message is one in a Heard. A vendor's answers to calls are messages of role tool.
type Message struct {
	Role    string // system, user, assistant or tool
	Text    string
	Thought string // reasoning that was given back
	Seals   int    // how many signatures and the like were given back, all of them valid
	Images  []string
	Files   []string // names
	Calls   []Call
	CallID  string // of a tool's message
}

// A Call is one in a Message.
type Call struct {
	ID, Name, Arguments string
}

// A Double is a vendor's server that follows a script. It is safe for concurrent use.
type Double struct {
	// URL is the base address for the adapter.
	URL string
	// Left receives when a client leaves before its answer is over.
	Left chan struct{}
	// CutAfter breaks every connection after so many bytes of the answer's body; 0 is never.
	CutAfter int

	script Script
	mu     sync.Mutex
	count  int
	heard  []*Heard
	wrote  int
}

func newDouble(script Script) *Double {
	return &Double{script: script, Left: make(chan struct{}, 1024)}
}

// Heard returns the requests so far, in the order of their arrival, of which the
// vendor would have accepted all.
func (d *Double) Heard() []*Heard {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heard[:len(d.heard):len(d.heard)]
}

// next counts a request, keeps it if it should, and returns what to answer.
func (d *Double) next(h *Heard, keep bool) Turn {
	d.mu.Lock()
	n := d.count
	d.count++
	if keep {
		d.heard = append(d.heard, h)
	}
	d.mu.Unlock()
	return d.script(n, h)
}

// asked returns how many requests there were.
func (d *Double) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// Wrote returns how many bytes the body of the last answer had.
func (d *Double) Wrote() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wrote
}

// A line writes the body of one answer.
type line struct {
	*Double
	w     io.Writer
	flush func() error
	gone  <-chan struct{}
	sent  int
	buf   []byte
}

func (d *Double) line(w http.ResponseWriter, r *http.Request) *line {
	return &line{Double: d, w: w, flush: http.NewResponseController(w).Flush, gone: r.Context().Done()}
}

// write reports whether the client is still there.
func (l *line) write(b []byte) bool {
	cut := l.CutAfter > 0 && l.sent+len(b) >= l.CutAfter
	if cut {
		b = b[:l.CutAfter-l.sent]
	}
	n, err := l.w.Write(b)
	l.sent += n
	l.mu.Lock()
	l.wrote = l.sent
	l.mu.Unlock()
	if err == nil {
		err = l.flush()
	}
	if cut {
		panic(http.ErrAbortHandler)
	}
	return err == nil
}

// event writes a server-sent event; kind may be empty.
func (l *line) event(kind string, data []byte) bool {
	l.buf = l.buf[:0]
	if kind != "" {
		l.buf = append(append(append(l.buf, "event: "...), kind...), '\n')
	}
	l.buf = append(append(append(l.buf, "data: "...), data...), "\n\n"...)
	return l.write(l.buf)
}

// wait holds the answer back.
func (l *line) wait(step Wait) bool {
	select {
	case <-step:
		return true
	case <-l.gone:
		return false
	}
}

func (d *Double) left() {
	select {
	case d.Left <- struct{}{}:
	default:
	}
}
