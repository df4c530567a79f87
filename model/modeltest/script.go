// Package modeltest is the suite of conversations that every provider must pass,
// and the doubles of vendors that it is run against, over HTTP.
package modeltest

import (
	"encoding/json"
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
// Wait, Raw, Malformed, Fault and Cut. An answer without a model.Finish ends
// without the vendor's end mark.
type Step any

type (
	// Wait holds the answer back until the channel is closed or the client leaves.
	Wait <-chan struct{}

	// Raw is bytes of the body as they stand.
	Raw string

	// Malformed is an event that cannot be read.
	Malformed struct{}

	// Fault is an error in the middle of the answer, in the vendor's form.
	Fault struct {
		Code    string
		Message string
	}

	// Cut breaks the connection.
	Cut struct{}
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

	script Script
	mu     sync.Mutex
	count  int
	heard  []*Heard
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

func (d *Double) left() {
	select {
	case d.Left <- struct{}{}:
	default:
	}
}
