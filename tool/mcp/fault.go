package mcp

import (
	"sync"
)

// A connectionError records why a connection failed, which the errors of the SDK do not contain. It
// is safe for concurrent use.
type connectionError struct {
	mu     sync.Mutex
	err    error  // of the request: of this package, of egress, or of the network
	status int    // HTTP status of a refused request
	exited string // how the server's command ended, with the end of its stderr
	ending bool   // this server ends the command

	omitted omissions // tools that could not be decoded
}

func (f *connectionError) set(change func(*connectionError)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// omit records a tool that could not be decoded.
func (f *connectionError) omit(name, reason string) {
	f.set(func(f *connectionError) { f.omitted.add(name, reason) })
}

// takeOmitted returns the tools that could not be decoded since the last call.
func (f *connectionError) takeOmitted() (taken omissions) {
	f.set(func(f *connectionError) { taken, f.omitted = f.omitted, omissions{} })
	return taken
}

// reset forgets the faults of earlier requests.
func (f *connectionError) reset() { f.set(func(f *connectionError) { f.err, f.status = nil, 0 }) }

func (f *connectionError) get() (status int, exited string, err error) {
	if f == nil {
		return 0, "", nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, f.exited, f.err
}
