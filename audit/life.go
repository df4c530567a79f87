package audit

import (
	"maps"

	"github.com/berth-run/berth"
)

// An overlay is the state of containers with what a batch makes of it, before the
// batch is written.
type overlay struct {
	under map[berth.ContainerID]Life
	over  map[berth.ContainerID]Life // the zero Life is one that is gone
}

func (o overlay) get(id berth.ContainerID) (Life, bool) {
	l, ok := o.over[id]
	if ok {
		return l, l != Life{}
	}
	l, ok = o.under[id]
	return l, ok
}

// take learns from an entry. It reports false for one that repeats the end of a
// container, or ends one that was never there.
func (o overlay) take(e *Entry) bool {
	l, ok := o.get(e.Container)
	switch e.Action {
	case SegmentBegun:
		for id := range o.under {
			o.over[id] = Life{}
		}
		maps.Copy(o.over, e.Living)
	case ContainerCreated:
		o.over[e.Container] = Life{Project: e.Project}
	case ContainerEnded:
		if !ok || l.Ended {
			return false
		}
		l.Ended = true
		o.over[e.Container] = l
	case ContainerErased:
		if !ok || !l.Ended {
			return false
		}
		o.over[e.Container] = Life{}
	}
	return true
}

// merge makes the state what the batch, which is written now, made of it.
func (o overlay) merge() {
	for id, l := range o.over {
		if l == (Life{}) {
			delete(o.under, id)
		} else {
			o.under[id] = l
		}
	}
}
