package ssh

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/clock"
)

// maxAddresses bounds the addresses whose failures are remembered.
const maxAddresses = 10_000

// failures counts the failed attempts of addresses. An address with too many has to wait.
type failures struct {
	clock clock.Clock
	most  int
	life  time.Duration

	mu  sync.Mutex
	all map[netip.Addr]*tally
}

type tally struct {
	count int
	until time.Time
}

func newFailures(c clock.Clock, most int, life time.Duration) *failures {
	return &failures{clock: c, most: most, life: life, all: map[netip.Addr]*tally{}}
}

// tooMany reports whether an address has to wait.
func (f *failures) tooMany(a netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.all[a]
	if t != nil && !f.clock.Now().Before(t.until) {
		delete(f.all, a)
		t = nil
	}
	return t != nil && t.count >= f.most
}

// add counts failures of an address. It returns how many there were so far, or 0 if they are not worth a record: the
// first failure is, and the one after which the address has to wait.
func (f *failures) add(a netip.Addr, n int) (record int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	t := f.all[a]
	if t == nil || !now.Before(t.until) {
		if len(f.all) >= maxAddresses {
			f.thin(now)
		}
		t = &tally{until: now.Add(f.life)}
		f.all[a] = t
	}
	before := t.count
	t.count += n
	if before == 0 || before < f.most && t.count >= f.most {
		return t.count
	}
	return 0
}

// thin forgets addresses: those whose time is over, and any others if that is not enough.
func (f *failures) thin(now time.Time) {
	for a, t := range f.all {
		if !now.Before(t.until) {
			delete(f.all, a)
		}
	}
	for a := range f.all {
		if len(f.all) < maxAddresses/10*9 {
			return
		}
		delete(f.all, a)
	}
}

// addressOf returns the address of a client, of IPv6 its network of 64 bits, which one client has.
func addressOf(a net.Addr) netip.Addr {
	parsed, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := parsed.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}
