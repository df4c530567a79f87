// Package freeport chooses ports for tests that start servers.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Addr returns an address on loopback at which no process listens. Its port is below those that
// the kernel assigns (net.ipv4.ip_local_port_range), so that no connection of another test takes
// it before the server listens.
func Addr(tb testing.TB) string {
	tb.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000)))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	tb.Fatal("no port is free")
	return ""
}

// Port returns the port of Addr.
func Port(tb testing.TB) string {
	tb.Helper()
	_, port, err := net.SplitHostPort(Addr(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return port
}
