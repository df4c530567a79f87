package container

import (
	"sync"
	"time"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/egress"
	"golang.org/x/time/rate"
)

// Connections of a container are audited one by one up to this rate, and summed beyond it: a
// hostile container can make thousands a second.
const (
	flowBurst    = 100
	flowInterval = 250 * time.Millisecond
)

// recordFlow records that a connection was made, ended or was refused.
func (t *trail) recordFlow(s *instance, f egress.Flow) {
	traceFlow(s, f)
	if t.opts.Audit != nil {
		t.opts.Audit.Record(s.flows.add(s, f, t.opts.clock.Now())...)
	}
}

// flows sums the connections of a container that are not audited one by one.
type flows struct {
	mu          sync.Mutex
	often, used *rate.Limiter
	more        audit.Entry   // the sum of connections
	uses        map[use]int64 // the sums of uses of secrets
}

// A use is a secret that was sent to a host.
type use struct {
	name, host string
	port       int
}

// maxUses bounds the uses that are counted by host; further uses are counted without a host.
const maxUses = 256

// add returns the audit entries for a connection that was made, ended or was refused at the time now.
func (fs *flows) add(s *instance, f egress.Flow, now time.Time) []audit.Entry {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var entries []audit.Entry
	if fs.often == nil {
		fs.often, fs.used = rate.NewLimiter(rate.Every(flowInterval), flowBurst),
			rate.NewLimiter(rate.Every(flowInterval), flowBurst)
		fs.uses = map[use]int64{}
	}
	for _, name := range f.Secrets {
		u := use{name, f.Target.Host, f.Target.Port}
		if fs.used.AllowN(now, 1) {
			entries = append(entries, u.entry(s))
			continue
		}
		if _, known := fs.uses[u]; !known && len(fs.uses) >= maxUses {
			u = use{name: name}
		}
		fs.uses[u]++
	}
	if !fs.often.AllowN(now, 1) {
		if !f.Opening { // counted when the connection ends
			fs.more.Count++
			fs.more.Sent += f.Sent
			fs.more.Received += f.Received
			if !f.Allowed {
				fs.more.Refused++
			}
		}
		return entries
	}
	e := s.entry(audit.EgressEnded)
	switch {
	case !f.Allowed:
		e.Action = audit.EgressRefused
	case f.Opening:
		e.Action = audit.EgressConnected
	}
	e.Host, e.Port, e.Reason = f.Target.Host, f.Target.Port, f.Reason
	e.Sent, e.Received, e.Milliseconds = f.Sent, f.Received, f.Took.Milliseconds()
	if f.Addr.IsValid() {
		e.Address = f.Addr.String()
	}
	e.Proxy = f.Proxy
	return append(append(entries, fs.restLocked(s)...), e)
}

// rest returns the entries with the sums since the last call.
func (fs *flows) rest(s *instance) []audit.Entry {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.restLocked(s)
}

func (fs *flows) restLocked(s *instance) []audit.Entry {
	var entries []audit.Entry
	for u, n := range fs.uses {
		e := u.entry(s)
		e.Count = n
		entries = append(entries, e)
	}
	clear(fs.uses)
	if fs.more.Count == 0 {
		return entries
	}
	e := s.entry(audit.EgressMore)
	e.Count, e.Refused, e.Sent, e.Received = fs.more.Count, fs.more.Refused, fs.more.Sent, fs.more.Received
	fs.more = audit.Entry{}
	return append(entries, e)
}

func (u use) entry(s *instance) audit.Entry {
	e := s.entry(audit.SecretUsed)
	e.Name, e.Host, e.Port = u.name, u.host, u.port
	return e
}
