package assistants

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A part is one step's share of a response's output: a message, or calls that the
// model made together.
type part struct {
	index   int        // of its first item in the output
	message berth.Item // zero if it is calls
	calls   []berth.Item
	outputs []berth.Item // of the calls that the server answered; later calls are another turn's
	open    bool         // something of it is in progress
}

// parts divides a response's output. What was given up and asked again is left out.
func parts(leg *berth.Response) []*part {
	var out []*part
	for i, it := range leg.Output {
		var last *part
		if len(out) > 0 {
			last = out[len(out)-1]
		}
		switch {
		case givenUp(leg, i):
		case it.Type() == berth.ItemMessage:
			out = append(out, &part{index: i, message: it, open: it.Status() == berth.StatusInProgress})
		case isCall(it):
			if last == nil || last.calls == nil || last.outputs != nil {
				last = &part{index: i}
				out = append(out, last)
			}
			last.calls = append(last.calls, it)
			last.open = last.open || it.Status() == berth.StatusInProgress
		case it.CallID() != "" && last != nil: // an output
			last.outputs = append(last.outputs, it)
			last.open = last.open || it.Status() == berth.StatusInProgress
		}
	}
	return out
}

// givenUp reports whether an item was broken off and its turn asked again.
func givenUp(leg *berth.Response, i int) bool {
	if leg.Output[i].Status() != berth.StatusIncomplete {
		return false
	}
	if !leg.Status.Final() || leg.Status == berth.StatusCompleted {
		return true
	}
	return leg.Output[i].Type() == berth.ItemMessage && i < len(leg.Output)-1
}

// asks reports whether the part has a call that the client must answer.
func (p *part) asks() bool { return slices.ContainsFunc(p.calls, p.isAsked) }

// isAsked reports whether a call is the client's to answer: it is of a function,
// and the server has not answered it, as it does if nobody offered that function.
func (p *part) isAsked(it berth.Item) bool {
	return callKinds[it.Type()].client && p.output(it).IsZero()
}

// output returns the server's output for a call, zero if there is none.
func (p *part) output(it berth.Item) berth.Item {
	for _, out := range p.outputs {
		if out.CallID() == it.CallID() {
			return out
		}
	}
	return berth.Item{}
}

// broken reports whether the part is not whole.
func (p *part) broken() bool {
	if p.calls == nil {
		return p.message.Status() == berth.StatusIncomplete
	}
	return slices.ContainsFunc(p.calls, func(it berth.Item) bool { return it.Status() == berth.StatusIncomplete })
}

// bornAt is when an item of a response was begun, in Unix seconds: what its id says
// if this server has made it, else when the response was created.
func bornAt(leg *berth.Response, index int) int64 {
	first, last := leg.CreatedAt, leg.CreatedAt+int64(30*24*time.Hour/time.Second)
	if leg.CompletedAt != nil {
		last = *leg.CompletedAt
	}
	const digits = 12 // of milliseconds; see berth.NewID
	_, id, _ := strings.Cut(leg.Output[index].ID(), "_")
	if len(id) != 48 {
		return first
	}
	ms, err := strconv.ParseInt(id[:digits], 16, 64)
	if at := time.UnixMilli(ms).Unix(); err == nil && at >= first && at <= last {
		return at
	}
	return first
}

// closedAt is about when an item ended: when the next one was begun, or the
// response completed.
func closedAt(leg *berth.Response, index int) int64 {
	switch {
	case index+1 < len(leg.Output):
		return bornAt(leg, index+1)
	case leg.CompletedAt != nil:
		return *leg.CompletedAt
	}
	return bornAt(leg, index)
}
