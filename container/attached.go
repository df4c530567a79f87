package container

import (
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
)

// What callers do in a container by themselves, as the audit record names it.
const (
	attachedTerminal   = "terminal"
	attachedCommand    = "command"
	attachedConnection = "connection" // to the guest: commands and files
	attachedFiles      = "files"
	attachedPort       = "port"
	attachedNeighbour  = "neighbour"
)

// attachPause is how long further uses of the same kind by the same key have no entries.
const attachPause = 10 * time.Minute

// maxAttachments bounds the keys in memory. Beyond it, uses have more entries than they need.
const maxAttachments = 1000

// attachments are the entries about a container that were made last. The zero value is empty.
type attachments struct {
	mu   sync.Mutex
	last map[attachment]time.Time
}

type attachment struct {
	key     berth.KeyID
	session string
	kind    string
}

// due reports whether a use has an entry of its own.
func (all *attachments) due(a attachment, now time.Time) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if at, ok := all.last[a]; ok && now.Sub(at) < attachPause {
		return false
	}
	if all.last == nil || len(all.last) >= maxAttachments {
		all.last = map[attachment]time.Time{}
	}
	all.last[a] = now
	return true
}

// recordAttached records that a caller uses a container by itself, not through a response. Each terminal has an entry.
// Of other uses, which are many, the first of a key in ten minutes has one.
func (t *trail) recordAttached(s *instance, c berth.Caller, kind string) {
	if t.opts.Audit == nil {
		return
	}
	if kind != attachedTerminal && !s.attached.due(attachment{c.Key, c.Session, kind}, t.opts.clock.Now()) {
		return
	}
	e := s.entry(audit.ContainerAttached)
	e.Key, e.Person, e.Reason = c.Key, c.Person, kind
	t.opts.Audit.Record(e)
}

// recordVisit records that another container of the group connected to a container: the first time in ten minutes.
func (t *trail) recordVisit(s *instance, from berth.ContainerID) {
	if t.opts.Audit == nil ||
		!s.attached.due(attachment{session: string(from), kind: attachedNeighbour}, t.opts.clock.Now()) {
		return
	}
	e := s.entry(audit.ContainerAttached)
	e.Reason, e.Name = attachedNeighbour, string(from)
	t.opts.Audit.Record(e)
}
