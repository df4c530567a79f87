// Package ration limits the memory that projects' requests use together.
//
// A Pool is a number of bytes. Each owner may hold a part of it, so that no owner can
// exhaust it. Reservations that do not fit wait in order; their number and the wait
// are limited. An Account holds the reservations of one piece of work. It travels in a
// context, so that code can reserve memory right before it loads something large.
package ration

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
)

// Free is the number of bytes that each account has without a reservation. The limit
// on connections bounds their sum.
const Free = 64 << 10

// Options are the limits of a Pool.
type Options struct {
	Total   int64         // bytes that all owners may hold together
	Each    int64         // bytes that one owner may hold; default half of Total
	Wait    time.Duration // maximum wait of a reservation; default 1 min
	Waiting int           // maximum number of waiting reservations of one owner; default 256
}

// A Pool is the memory that all accounts share. It is safe for concurrent use. A nil
// Pool has no limit.
type Pool struct {
	opts Options

	mu      sync.Mutex
	held    int64
	owners  map[string]*owner
	waiters []*waiter // in the order of their arrival
}

// An owner is the state of an owner that holds bytes or waits for them.
type owner struct {
	held    int64
	waiting int
}

type waiter struct {
	owner   string
	n       int64
	granted chan struct{} // closed when the bytes are held
}

// New returns a pool without reservations.
func New(opts Options) *Pool {
	if opts.Each == 0 {
		opts.Each = opts.Total / 2
	}
	if opts.Wait == 0 {
		opts.Wait = time.Minute
	}
	if opts.Waiting == 0 {
		opts.Waiting = 256
	}
	return &Pool{opts: opts, owners: map[string]*owner{}}
}

// Held returns the number of bytes reserved now.
func (p *Pool) Held() int64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// busy returns the error of a reservation that could not be granted in time.
func (p *Pool) busy() error {
	return &berth.Error{Code: berth.CodeUnavailable, Wire: "server_overloaded", RetryAfter: 5 * time.Second,
		Message: "The server is overloaded: other large requests are using its memory. Try again in 5 seconds."}
}

// acquire waits for n bytes and reserves them for an owner.
func (p *Pool) acquire(ctx context.Context, name string, n int64) error {
	p.mu.Lock()
	o := p.owners[name]
	if o == nil {
		o = &owner{}
		p.owners[name] = o
	}
	if o.waiting >= p.opts.Waiting {
		p.mu.Unlock()
		return p.busy()
	}
	w := &waiter{owner: name, n: n, granted: make(chan struct{})}
	o.waiting++
	p.waiters = append(p.waiters, w)
	p.grant()
	p.mu.Unlock()

	var err error
	select {
	case <-w.granted:
		return nil
	default:
	}
	t := time.NewTimer(p.opts.Wait)
	defer t.Stop()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-t.C:
		err = p.busy()
	}
	if !p.withdraw(w) { // granted at the same moment
		p.release(name, n)
	}
	return err
}

// grant grants waiting reservations in order. A waiter whose owner is at its limit does
// not block other owners. One that waits for the total does, because small reservations
// could otherwise delay a large one forever. p.mu must be held.
func (p *Pool) grant() {
	left := p.waiters[:0]
	full := false
	blocked := map[string]bool{} // owners with an earlier reservation that waits
	for _, w := range p.waiters {
		o := p.owners[w.owner]
		switch {
		case full || blocked[w.owner]:
		case o.held > 0 && o.held+w.n > p.opts.Each:
			blocked[w.owner] = true
		case p.held > 0 && p.held+w.n > p.opts.Total:
			full = true
		default:
			o.held += w.n
			o.waiting--
			p.held += w.n
			close(w.granted)
			continue
		}
		left = append(left, w)
	}
	clear(p.waiters[len(left):])
	p.waiters = left
}

// withdraw removes a waiter. It returns false if the waiter has been granted.
func (p *Pool) withdraw(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.waiters {
		if other == w {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			p.owners[w.owner].waiting--
			p.forget(w.owner)
			p.grant() // the waiters behind it
			return true
		}
	}
	return false
}

func (p *Pool) release(name string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held -= n
	p.owners[name].held -= n
	p.forget(name)
	p.grant()
}

// forget drops an owner that holds nothing and waits for nothing. p.mu must be held.
func (p *Pool) forget(name string) {
	if o := p.owners[name]; o.held == 0 && o.waiting == 0 {
		delete(p.owners, name)
	}
}

// An Account holds the reservations of one piece of work. It is safe for concurrent
// use. The methods of a nil Account do nothing.
type Account struct {
	pool  *Pool
	owner string

	mu     sync.Mutex
	needs  int64 // bytes reserved and not returned
	held   int64 // bytes taken from the pool; see share
	closed bool
}

// Open returns an empty account of an owner. The caller must close it.
func (p *Pool) Open(owner string) *Account {
	if p == nil {
		return nil
	}
	return &Account{pool: p, owner: owner}
}

// Reserve reserves n more bytes. It waits until the pool has them. If that takes too
// long, the error is a *berth.Error for the client. An account never takes more than
// its owner's part of the pool, so work that needs more runs once it is the owner's
// only work.
func (a *Account) Reserve(ctx context.Context, n int64) error {
	if a == nil || n <= 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	more := a.share(a.needs+n) - a.held
	if more > 0 && !a.closed {
		if err := a.pool.acquire(ctx, a.owner, more); err != nil {
			return err
		}
		a.held += more
	}
	a.needs += n
	return nil
}

// ReserveDecoding reserves what it takes to decode a JSON text of somebody else. It returns jsonscan.ErrValues or
// jsonscan.ErrDepth for a text that must not be decoded, also of a nil Account.
func (a *Account) ReserveDecoding(ctx context.Context, text []byte) error {
	values, err := jsonscan.Check(text, jsonscan.MaxValues(len(text)), jsonscan.MaxDepth)
	if err != nil {
		return err
	}
	return a.Reserve(ctx, jsonscan.Weight(len(text), values))
}

// share returns the number of bytes that an account takes from the pool if it needs n.
func (a *Account) share(n int64) int64 {
	if n <= Free {
		return 0
	}
	return min(n, a.pool.opts.Each)
}

// Needs returns the number of bytes reserved and not returned.
func (a *Account) Needs() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.needs
}

// Return releases n reserved bytes.
func (a *Account) Return(n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle(max(0, a.needs-n))
}

// Close releases all bytes. Later reservations take nothing from the pool.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.settle(0)
}

func (a *Account) settle(needs int64) {
	a.needs = needs
	if less := a.held - a.share(needs); less > 0 {
		a.held -= less
		a.pool.release(a.owner, less)
	}
}

type contextKey struct{}

// With returns a context that carries the account.
func With(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, contextKey{}, a)
}

// From returns the account that the context carries, or nil.
func From(ctx context.Context) *Account {
	a, _ := ctx.Value(contextKey{}).(*Account)
	return a
}

// Read reads all of in. size is its size in bytes; negative means unknown. It reserves
// memory in the account before it reads.
func Read(ctx context.Context, in io.Reader, size int64, held *Account) ([]byte, error) {
	known := size >= 0
	if !known {
		size = Free / 2
	}
	if err := held.Reserve(ctx, size); err != nil {
		return nil, err
	}
	body := make([]byte, 0, size+bytes.MinRead)
	for {
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if len(body) < cap(body) {
			continue
		}
		more := int64(cap(body))
		if err := held.Reserve(ctx, 2*more); err != nil { // for the larger copy, while the old one exists
			return nil, err
		}
		body = append(make([]byte, 0, 2*more), body...)
		held.Return(more)
	}
}
