package cluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/berth-run/berth"
)

// An Object is a container or a response.
type Object struct {
	Project   berth.ProjectID   `json:"project"`
	Container berth.ContainerID `json:"container,omitempty"`
	Response  berth.ResponseID  `json:"response,omitempty"`
}

// An Aim is what the caller of Where is about to do with a container. Both answers are needed: a server that was only
// paused may still have the sandbox of a container that another one has taken over.
type Aim int

const (
	// Use is a call of the container. A server that has the sandbox uses it: if another one has taken the container
	// over, the call fails and names that one.
	Use Aim = iota

	// Resume is the continuation of the container's runs. The store decides which server may do that, and the server
	// must have claimed the sandbox, or the calls in it would seem interrupted.
	Resume
)

// A Place is where an object is, as one server sees it.
type Place struct {
	Server string // the other server that has it, or "" if this one has it, or none
	Taking bool   // this server is taking the container over, and cannot use it yet; only for Resume
	Stored bool   // the store, which all servers share, has the response
}

// A Placement knows which server has what, and reaches the other servers. Solo is that of a server without others.
type Placement interface {
	// Self returns this server's name, or "" if it is alone.
	Self() string

	// Alone reports whether no other server uses the store.
	Alone() bool

	// Where returns where a container is, or where the run of a response is. A container that does not run, and a
	// response whose run has ended, are on no server.
	Where(ctx context.Context, o Object, aim Aim) (Place, error)

	// Alive reports whether a server is a member whose lease has not ended.
	Alive(ctx context.Context, server string) (bool, error)

	// Forward sends a request to a server and copies the answer to w. The caller is nil if
	// the request has no identified caller. It returns an error only if nothing was written.
	Forward(w http.ResponseWriter, r *http.Request, caller *berth.Caller, server string) error

	// Client returns a client of another server's API that acts for a caller. The hosts of its
	// URLs have no effect.
	Client(caller berth.Caller, server string) *http.Client

	// Remove makes another server delete an object that it has.
	Remove(ctx context.Context, server string, o Object) error

	// Visit connects to a port of a container that another server has. An error with CodeConflict names the rule that
	// forbids it.
	Visit(ctx context.Context, server string, v Visit) (net.Conn, error)

	// Acquire waits until no other server has the lock name, and takes it until release is
	// called. Callers on one server do not exclude each other.
	Acquire(ctx context.Context, name string) (release func(), err error)
}

// A Node is a server's place in its cluster.
type Node interface {
	Placement

	// Singleton runs work on one server of the cluster at a time, until stop is called.
	Singleton(name string, work func(ctx context.Context)) (stop func(context.Context) error)

	// Keep answers Where with the containers of this server, and ends or takes over those of servers that do not
	// return, until stop is called.
	Keep(containers Containers) (stop func(context.Context) error)

	// Running returns the number of a project's containers on this server. It is 0 before Keep.
	Running(p berth.ProjectID) int

	// OnRemoved adds a function that is called after the others have removed this server, and it has joined again.
	// It gives up what they have ended. If it fails, it is called again.
	OnRemoved(f func(ctx context.Context) error)

	// Serve serves requests of other servers at the address listen until stop is called: what they forward, with
	// api, removals, and visits. The caller of api is nil if it is not identified yet.
	Serve(ctx context.Context, listen string, api func(w http.ResponseWriter, r *http.Request, caller *berth.Caller),
		remove func(ctx context.Context, o Object) error,
		visit func(ctx context.Context, v Visit) (net.Conn, error)) (stop func(context.Context) error, err error)

	// Close leaves the cluster.
	Close(ctx context.Context) error
}

// Containers are the containers of a server.
type Containers interface {
	Where(ctx context.Context, p berth.ProjectID, id berth.ContainerID, aim Aim) (Place, error)
	Running(p berth.ProjectID) int

	// Moves reports whether the containers of a lost server can be taken over.
	Moves() bool
	TakeOver(ctx context.Context, member func(server string) bool) error
	EndLost(ctx context.Context, member func(server string) bool) error
	GiveUp(ctx context.Context) error
}

// Solo is the Node of a server without others: it has everything.
type Solo struct{}

var _ Node = Solo{}

// errSolo is the error of calls of other servers.
var errSolo = errors.New("there is no other server")

// Self implements Placement.
func (Solo) Self() string { return "" }

// Alone implements Placement.
func (Solo) Alone() bool { return true }

// Where implements Placement.
func (Solo) Where(context.Context, Object, Aim) (Place, error) { return Place{Stored: true}, nil }

// Alive implements Placement.
func (Solo) Alive(context.Context, string) (bool, error) { return false, nil }

// Forward implements Placement.
func (Solo) Forward(http.ResponseWriter, *http.Request, *berth.Caller, string) error { return errSolo }

// Client implements Placement.
func (Solo) Client(berth.Caller, string) *http.Client { return &http.Client{Transport: unreached{}} }

// Remove implements Placement.
func (Solo) Remove(context.Context, string, Object) error { return errSolo }

// Visit implements Placement.
func (Solo) Visit(context.Context, string, Visit) (net.Conn, error) { return nil, errSolo }

// Acquire implements Placement.
func (Solo) Acquire(context.Context, string) (release func(), err error) { return func() {}, nil }

// Singleton implements Node.
func (Solo) Singleton(_ string, work func(ctx context.Context)) (stop func(context.Context) error) {
	return inBackground(work)
}

// Keep implements Node.
func (Solo) Keep(Containers) (stop func(context.Context) error) { return nothing }

// Running implements Node.
func (Solo) Running(berth.ProjectID) int { return 0 }

// OnRemoved implements Node.
func (Solo) OnRemoved(func(ctx context.Context) error) {}

// Serve implements Node.
func (Solo) Serve(context.Context, string, func(http.ResponseWriter, *http.Request, *berth.Caller),
	func(context.Context, Object) error,
	func(context.Context, Visit) (net.Conn, error)) (stop func(context.Context) error, err error) {
	return nothing, nil
}

func nothing(context.Context) error { return nil }

// Close implements Node.
func (Solo) Close(context.Context) error { return nil }

// unreached is the transport to the other servers of a server that has none.
type unreached struct{}

func (unreached) RoundTrip(*http.Request) (*http.Response, error) { return nil, errSolo }

// inBackground calls run in the background. stop cancels its context and waits for it.
func inBackground(run func(context.Context)) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	return func(context.Context) error {
		cancel()
		wg.Wait()
		return nil
	}
}
