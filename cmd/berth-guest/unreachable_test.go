package main

import (
	"net"
	"slices"
	"testing"
)

// Only addresses that accept connections are reachable.
func TestReachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	here := l.Addr().String()
	if got := reachable([]string{closed.Addr().String(), here, ":"}); !slices.Equal(got, []string{here}) {
		t.Errorf("got %q, want %q", got, here)
	}
	if err := unreachable("1s", []string{closed.Addr().String()}); err != nil {
		t.Errorf("got %v", err)
	}
	if err := unreachable("soon", nil); err == nil {
		t.Error("a wrong duration: got no error")
	}
}
