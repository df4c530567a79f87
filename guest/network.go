package guest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
	"github.com/berth-run/berth/internal/backoff"
)

// A Network holds the settings that a guest gets when it is connected to the network.
type Network struct {
	Authorities []byte            // certificates to trust, in PEM
	Environment map[string]string // for all further commands
	Addresses   Need              // whether to add a route for addresses without a name
}

// A Need is the degree to which a setting is needed.
type Need int

const (
	NotNeeded Need = iota
	Wanted         // its failure is not an error
	Needed
)

// Outward connects the sandbox to the network until ctx ends: out answers the requests on
// the guest's streams. After each loss of the connection it connects again. It calls report
// with nil after each connection, and with the error after each failure, which may be often. settings
// is called for each connection.
func (c *Client) Outward(ctx context.Context, out http.Handler, settings func() Network, report func(error)) {
	wait := backoff.Delays{First: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		lost, err := c.outward(ctx, out, settings())
		if err == nil {
			wait.Reset()
			report(nil)
			select {
			case <-lost:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			report(err)
		}
		if backoff.Sleep(ctx, wait.Next()) != nil {
			return
		}
	}
}

// outward connects once. lost is closed with the session.
func (c *Client) outward(ctx context.Context, out http.Handler, n Network) (lost <-chan struct{}, err error) {
	session, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: out, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10,
		IdleTimeout: time.Minute,
		ErrorLog:    log.New(io.Discard, "", 0)}
	alive, end := context.WithCancel(ctx)
	// the end of alive distinguishes a lost stream from one closed for writing
	server.BaseContext = func(net.Listener) context.Context { return alive }
	go func() { <-session.Done(); end() }()
	go func() { _ = server.Serve(session) }() // ends with the session
	if err := c.SetNetwork(ctx, n); err != nil {
		session.Close() // the next attempt uses a new session
		return nil, err
	}
	return session.Done(), nil
}

// SetNetwork sends the guest settings. Outward does so for each connection, so this is for settings that
// have changed since. A route for addresses that is there remains.
func (c *Client) SetNetwork(ctx context.Context, n Network) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := c.guest.SetNetwork(ctx, connect.NewRequest(&v1.SetNetworkRequest{Authorities: n.Authorities,
		Environment: n.Environment, Addresses: n.Addresses != NotNeeded}))
	if err == nil && answer.Msg.Unroutable != "" && n.Addresses == Needed {
		err = fmt.Errorf("the sandbox has no route for addresses: %s", fewWords(answer.Msg.Unroutable))
	}
	return err
}
