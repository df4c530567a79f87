package assistants

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A part is one step's share of a response's output: a message, or calls. Calls that
// the client answers and that follow each other are one part: the model made them
// together, because it halts for the answers.
type part struct {
	index   int        // of its first item in the output
	message berth.Item // zero if it is calls
	calls   []berth.Item
	open    bool // something of it is in progress
}

// parts divides a response's output. What was given up and asked again is left out.
func parts(leg *berth.Response) []*part {
	var out []*part
	for i, it := range leg.Output {
		kind, isCall := callKinds[it.Type()]
		if !isCall && it.Type() != berth.ItemMessage || givenUp(leg, i) {
			continue
		}
		p := &part{index: i}
		if n := len(out); kind.client && n > 0 && out[n-1].asks() {
			p = out[n-1]
		} else {
			out = append(out, p)
		}
		if isCall {
			p.calls = append(p.calls, it)
		} else {
			p.message = it
		}
		p.open = p.open || it.Status() == berth.StatusInProgress
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

// asks reports whether the client must answer the part.
func (p *part) asks() bool { return p.calls != nil && callKinds[p.calls[0].Type()].client }

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
