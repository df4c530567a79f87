package threads

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A part is the part of a response's output that one step shows: a message, or calls.
// Consecutive calls that the client answers are one part, because the model made them in
// the same turn.
type part struct {
	index   int        // of its first item in the output
	message berth.Item // zero if the part is calls
	calls   []berth.Item
	places  []int          // of the calls in the output
	images  []berth.FileID // what code displayed since the message before this one
	open    bool           // an item is in progress
}

// parts divides a response's output. It skips items of abandoned turns.
func parts(leg *berth.Response) []*part {
	var out []*part
	var shown []berth.FileID
	for i, it := range leg.Output {
		kind, isCall := callKinds[it.Type()]
		if !isCall && it.Type() != berth.ItemMessage || abandoned(leg, i) {
			continue
		}
		p := &part{index: i}
		if n := len(out); kind.client && n > 0 && out[n-1].needsClient() {
			p = out[n-1]
		} else {
			out = append(out, p)
		}
		if isCall {
			p.calls, p.places = append(p.calls, it), append(p.places, i)
		} else {
			p.message, p.images, shown = it, shown, nil
		}
		if call := codeCall(it); call != nil {
			for _, o := range images(leg.ID, i, call) {
				shown = append(shown, o.id)
			}
		}
		p.open = p.open || it.Status() == berth.StatusInProgress
	}
	return out
}

// abandoned reports whether an item was interrupted and its turn repeated.
func abandoned(leg *berth.Response, i int) bool {
	if leg.Output[i].Status() != berth.StatusIncomplete {
		return false
	}
	if !leg.Status.Final() || leg.Status == berth.StatusCompleted {
		return true
	}
	return leg.Output[i].Type() == berth.ItemMessage && i < len(leg.Output)-1
}

// needsClient reports whether the part's calls need outputs of the client.
func (p *part) needsClient() bool { return p.calls != nil && callKinds[p.calls[0].Type()].client }

// broken reports whether an item of the part is incomplete.
func (p *part) broken() bool {
	if p.calls == nil {
		return p.message.Status() == berth.StatusIncomplete
	}
	return slices.ContainsFunc(p.calls, func(it berth.Item) bool { return it.Status() == berth.StatusIncomplete })
}

// startedAt returns when an item of a response was started, in Unix seconds. It is the time
// in the item's id if this server made the id, otherwise the creation of the response.
func startedAt(leg *berth.Response, index int) int64 {
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

// endedAt returns approximately when an item ended: the start of the next item, or the end
// of the response.
func endedAt(leg *berth.Response, index int) int64 {
	switch {
	case index+1 < len(leg.Output):
		return startedAt(leg, index+1)
	case leg.CompletedAt != nil:
		return *leg.CompletedAt
	}
	return startedAt(leg, index)
}
