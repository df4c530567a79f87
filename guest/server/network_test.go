package server

import (
	"errors"
	"testing"
)

// A request for a route that is still being served when the guest falls asleep creates none: a sandbox with its
// device cannot be saved.
func TestNoRouteWhileAsleep(t *testing.T) {
	n := &network{}
	if err := n.fallAsleep(); err != nil {
		t.Fatal(err)
	}
	if err := n.openRoute(); !errors.Is(err, errAsleep) || n.route != nil {
		t.Errorf("asleep: got the route %v and %v", n.route, err)
	}
	n.awake()
	if n.slept { // openRoute is not called here: it would change the routes of this machine
		t.Error("the guest is awake, and still refuses a route")
	}
}
