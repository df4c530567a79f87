package audit

import (
	"maps"

	"github.com/berth-run/berth"
)

// An overlay is the state of containers after a batch that is not written yet. It leaves
// the state before the batch unchanged.
type overlay struct {
	under map[berth.ContainerID]Life
	over  map[berth.ContainerID]Life // the zero Life means erased
}

func (o overlay) get(id berth.ContainerID) (Life, bool) {
	l, ok := o.over[id]
	if ok {
		return l, l != Life{}
	}
	l, ok = o.under[id]
	return l, ok
}

// apply updates the state with an entry. It returns false for an entry to skip: one that
// ends a container twice, or ends one that was never created.
func (o overlay) apply(e *Entry) bool {
	l, ok := o.get(e.Container)
	switch e.Action {
	case SegmentStarted:
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
	case ContainerMoved:
		if !ok {
			return false
		}
		o.over[e.Container] = Life{}
	case ContainerErased:
		if !ok || !l.Ended {
			return false
		}
		o.over[e.Container] = Life{}
	}
	return true
}

// merge replaces the state before the batch with the state after it.
func (o overlay) merge() {
	for id, l := range o.over {
		if l == (Life{}) {
			delete(o.under, id)
		} else {
			o.under[id] = l
		}
	}
}
