package route

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Refuse lets programs open no more connections, and returns when none is in the middle of its handshake, after some
// seconds in any case. Out.Connect must return errors by then.
//
// gVisor cannot start a sandbox from a memory with such a handshake: it ends those whose device is gone, one after
// another, but waits in each until it has restored all connections and listeners, also those that come later.
func (r *Route) Refuse() error {
	if err := removeRoutes(); err != nil {
		return err
	}
	// A packet that was lost is sent again after a second. None must be found twice, as a connection that has just
	// found its route is not listed yet.
	const patience, look = 3 * time.Second, time.Millisecond
	for began, quiet := time.Now(), 0; quiet < 2 && time.Since(began) < patience; {
		open, err := handshakes()
		if err != nil {
			return err
		}
		if quiet++; open > 0 {
			quiet = 0
		}
		time.Sleep(look)
	}
	return nil
}

// handshakes counts the connections of all programs that are being opened to an address outside.
func handshakes() (n int, err error) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			return n, err
		}
		m, err := countHandshakes(f)
		f.Close()
		if err != nil {
			return n, fmt.Errorf("%s: %w", name, err)
		}
		n += m
	}
	return n, nil
}

// countHandshakes reads a table of proc(5), in which a line has a number, the address of each end and a state.
func countHandshakes(table io.Reader) (n int, err error) {
	const sent, received = "02", "03"
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || words[3] != sent && words[3] != received {
			continue
		}
		local, err := parseAddr(words[1])
		if err != nil {
			return n, err
		}
		if !local.IsLoopback() {
			n++
		}
	}
	return n, lines.Err()
}

// parseAddr reads an address of such a table: words of four bytes in the machine's order, and a port.
func parseAddr(s string) (netip.Addr, error) {
	s, _, _ = strings.Cut(s, ":")
	b, err := hex.DecodeString(s)
	if err != nil || len(b)%4 != 0 {
		return netip.Addr{}, fmt.Errorf("address %q is not understood", s)
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.Addr{}, fmt.Errorf("address %q is not understood", s)
	}
	return addr.Unmap(), nil
}
