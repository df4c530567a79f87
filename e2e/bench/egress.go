package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strconv"
)

//go:embed programs/out.py
var outProgram string

// A way is what out.py measured.
type way struct{ Connect, Down, Up, Datagram []float64 }

// measureEgress measures the way out of a container, by name, by address and for
// datagrams, and beside it the same program on this machine, connected directly.
func measureEgress(ctx context.Context, b *bench) (err error) {
	t := &table{title: "Out of a container"}
	defer b.show(t)
	addr, err := ownAddress()
	if err != nil {
		return err
	}
	o, err := serveOutside(addr)
	if err != nil {
		return err
	}
	defer o.close()
	tcp, udp := netip.AddrPortFrom(addr, o.port), netip.AddrPortFrom(addr, o.udpPort)
	allowed := []string{tcp.String(), udp.String() + "/udp", net.JoinHostPort(outsideName, strconv.Itoa(int(o.port)))}
	quoted, err := json.Marshal(allowed)
	if err != nil {
		return err
	}
	s, err := b.serveWith(ctx, "containers: {pool: 0, network: {private: "+string(quoted)+"}}\n",
		addr.String()+" "+outsideName+"\n")
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	id, err := s.first(ctx,
		map[string]any{"network_policy": map[string]any{"type": "allowlist", "allowed_domains": allowed}})
	if err != nil {
		return err
	}
	inside := func(host string, udp string) (way, error) {
		out, err := s.exec(ctx, id, "/usr/bin/python3", o.program(host, udp)...)
		return decodeWay(out, err)
	}
	rootfs, err := b.rootfs()
	if err != nil {
		return err
	}
	direct, err := decodeWay(output(ctx, "chroot", append([]string{rootfs, "/usr/bin/python3"}, o.program(addr.String(),
		addr.String())...)...))
	if err != nil {
		return err
	}
	byName, err := inside(outsideName, "-")
	if err != nil {
		return err
	}
	t.addWay("by name", byName, direct)
	byAddress, err := inside(addr.String(), addr.String())
	if err != nil {
		return err
	}
	t.addWay("by address", byAddress, direct)
	t.add(row{what: "a datagram and its answer", unit: "ms", series: worked(byAddress.Datagram), beside: "direct",
		other: worked(direct.Datagram)})
	return nil
}

func (t *table) addWay(by string, in, direct way) {
	t.add(row{what: by + ": connection and one request", unit: "ms", series: worked(in.Connect), beside: "direct",
		other: worked(direct.Connect)})
	t.add(row{what: by + ": download", unit: "MB/s", series: worked(in.Down), beside: "direct",
		other: worked(direct.Down)})
	t.add(row{what: by + ": upload", unit: "MB/s", series: worked(in.Up), beside: "direct", other: worked(direct.Up)})
}

// worked is a series of what all worked.
func worked(values []float64) series { return series{values: values, tried: len(values)} }

func decodeWay(out string, err error) (w way, _ error) {
	if err != nil {
		return w, err
	}
	return w, json.Unmarshal([]byte(out), &w)
}

// output runs a program of this machine and returns what it printed.
func output(ctx context.Context, path string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, path, args...).Output()
	return string(out), err
}

// ownAddress returns an address of this machine that is not the loopback's: in a
// sandbox that one is its own.
func ownAddress() (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("this machine has no address beside the loopback's")
}

// outsideName is the name by which containers reach this machine.
const outsideName = "outside.bench.internal"

// An outside is the server that containers reach, for connections and datagrams.
type outside struct {
	port, udpPort uint16
	close         func()
}

// seconds is how long out.py does each thing.
const seconds = "2"

func (o *outside) program(host, udp string) []string {
	return []string{"-c", outProgram, host, strconv.Itoa(int(o.port)), udp, strconv.Itoa(int(o.udpPort)), seconds}
}

// serveOutside serves on an address of this machine.
func serveOutside(addr netip.Addr) (*outside, error) {
	l, err := net.Listen("tcp4", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return nil, err
	}
	datagrams, err := net.ListenPacket("udp4", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		l.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /small", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) {
		for chunk := make([]byte, 256<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("PUT /take", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 256<<10))
	})
	hs := &http.Server{Handler: mux}
	go func() { _ = hs.Serve(l) }()
	go func() {
		for buf := make([]byte, 1500); ; {
			n, from, err := datagrams.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = datagrams.WriteTo(buf[:n], from)
		}
	}()
	return &outside{port: uint16(l.Addr().(*net.TCPAddr).Port),
		udpPort: uint16(datagrams.LocalAddr().(*net.UDPAddr).Port),
		close:   func() { hs.Close(); datagrams.Close() }}, nil
}
