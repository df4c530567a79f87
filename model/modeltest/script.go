// Package modeltest is the suite of conversations that every provider must pass, and
// the doubles of vendors that it runs against over HTTP.
package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A Script returns the answer to request n, counted from 0. Several goroutines may
// call it immediately.
type Script func(n int, got *Request) Turn

// A Turn is a double's answer to one request.
type Turn struct {
	Steps   []Step   // what it sends, in order
	Refusal *Refusal // an error it sends instead
}

// A Step is a model.Delta, which the double sends in its vendor's format, or one of
// Wait, Raw, Malformed, Mistyped, Fault, Cut and Sealed. An answer without a
// model.Finish ends without the vendor's end mark.
type Step any

type (
	// Wait blocks the answer until the channel is closed or the client disconnects.
	Wait <-chan struct{}

	// Raw is sent unchanged.
	Raw string

	// Malformed is an event that does not parse.
	Malformed struct{}

	// Mistyped is an event with an essential field of an undocumented type, and others
	// that do not matter.
	Mistyped struct{}

	// Fault is an error within the answer, in the vendor's form.
	Fault struct {
		Code    string
		Message string
	}

	// Cut breaks the connection.
	Cut struct{}

	// Sealed is reasoning without visible text, only with the data to send back.
	Sealed struct{}
)

// A Refusal is an error as an HTTP status, in the vendor's form.
type Refusal struct {
	Status  int
	Code    string
	Message string
	Header  http.Header // for example Retry-After
	Body    string      // replaces the vendor's form
}

// Reply returns a turn with the steps.
func Reply(steps ...Step) Turn { return Turn{Steps: steps} }

// Play answers with one turn after the other. It refuses requests after the last.
func Play(turns ...Turn) Script {
	return func(n int, _ *Request) Turn {
		if n < len(turns) {
			return turns[n]
		}
		return Turn{Refusal: &Refusal{Status: http.StatusInternalServerError, Message: "the script is over"}}
	}
}

// Always answers every request with the same turn.
func Always(turn Turn) Script {
	return func(int, *Request) Turn { return turn }
}

// A Request is a decoded request, independent of the vendor.
type Request struct {
	Model             string
	System            string // instructions and system messages before the first turn
	Messages          []Message
	Tools             []berth.FunctionTool
	ToolChoice        model.ToolChoice // Mode is empty if the request has none
	ParallelToolCalls bool
	MaxOutputTokens   int
	Temperature       *float64
	TopP              *float64
	Stop              []string
	Logprobs          bool
	TopLogprobs       int
	Format            json.RawMessage // as text.format in Responses; nil means text
	Effort            string
	User              string

	Body   json.RawMessage // unchanged
	Header http.Header
}

// A Message is a message of a Request. Outputs of calls are messages of role tool.
type Message struct {
	Role    string // system, user, assistant or tool
	Text    string
	Thought string // reasoning that was sent back
	Seals   int    // number of valid signatures and the like that were sent back
	Images  []string
	Files   []string // names
	Calls   []Call
	CallID  string // of a tool message
}

// A Call is a call in a Message.
type Call struct {
	ID, Name, Arguments string
}

// A Double is a vendor's server that follows a script. It is safe for concurrent use.
type Double struct {
	// URL is the base address for the adapter.
	URL string
	// Left receives when a client disconnects before its answer is over.
	Left chan struct{}
	// CutAfter breaks every connection after this many bytes of the response body; 0
	// means never.
	CutAfter int

	script   Script
	mu       sync.Mutex
	count    int
	requests []*Request
	wrote    int
}

func newDouble(script Script) *Double {
	return &Double{script: script, Left: make(chan struct{}, 1024)}
}

// Requests returns the requests that the vendor would have accepted, in order of
// arrival.
func (d *Double) Requests() []*Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests[:len(d.requests):len(d.requests)]
}

// next counts a request and returns the answer. It records the request if record is
// set.
func (d *Double) next(h *Request, record bool) Turn {
	d.mu.Lock()
	n := d.count
	d.count++
	if record {
		d.requests = append(d.requests, h)
	}
	d.mu.Unlock()
	return d.script(n, h)
}

// requestCount returns the number of requests, refused ones included.
func (d *Double) requestCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// Wrote returns the size of the last response body, in bytes.
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

// write reports whether the client is still connected.
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

// wait blocks the answer. It reports whether the client is still connected.
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
