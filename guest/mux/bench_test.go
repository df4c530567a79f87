package mux

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/hashicorp/yamux"
)

// Both clients beside each other, over a Unix socket with the guest's server: MB/s from and
// to the guest.
func BenchmarkThroughput(b *testing.B) {
	for name, open := range map[string]func(net.Conn) func() (net.Conn, error){
		"mux": func(c net.Conn) func() (net.Conn, error) {
			s := Client(c, nil, nil)
			return func() (net.Conn, error) { return s.Open(context.Background()) }
		},
		"yamux": func(c net.Conn) func() (net.Conn, error) {
			config := yamux.DefaultConfig()
			config.MaxStreamWindowSize = 512 << 10
			s, err := yamux.Client(c, config)
			if err != nil {
				b.Fatal(err)
			}
			return s.Open
		},
	} {
		for _, dir := range []string{"in", "out"} {
			b.Run(name+"/"+dir, func(b *testing.B) {
				ours, theirs := sockets(b)
				config := yamux.DefaultConfig()
				config.MaxStreamWindowSize = 1 << 20
				guest, err := yamux.Server(theirs, config)
				if err != nil {
					b.Fatal(err)
				}
				defer guest.Close()
				stream, err := open(ours)()
				if err != nil {
					b.Fatal(err)
				}
				other, err := guest.Accept()
				if err != nil {
					b.Fatal(err)
				}
				from, to := other, stream
				if dir == "out" {
					from, to = stream, other
				}
				buf, sink := make([]byte, 128<<10), make([]byte, 128<<10)
				b.SetBytes(int64(len(buf)))
				b.ResetTimer()
				go func() {
					for range b.N {
						if _, err := from.Write(buf); err != nil {
							return
						}
					}
				}()
				for range b.N {
					if _, err := io.ReadFull(to, sink); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func sockets(t testing.TB) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}
