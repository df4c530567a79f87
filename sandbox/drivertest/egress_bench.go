package drivertest

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
)

//go:embed measure.py
var measureScript string

// BenchmarkEgress measures a sandbox's network, at a port where HTTP is parsed (80) and at one
// without inspection (5432); and for comparison the same program on the host, connected
// directly.
func BenchmarkEgress(b *testing.B, d sandbox.Driver, rootfs string) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /small", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) {
		for chunk := make([]byte, 256<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("PUT /take", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	b.Cleanup(plain.Close)
	b.Cleanup(secure.Close)
	addr := plain.Listener.Addr().String()
	_, port, _ := strings.Cut(addr, ":")
	o := newOutsideOf(b, secure, map[int]string{80: addr, 5432: addr}, "example.com", "example.com:5432")
	box := Start(b, d, sandbox.Spec{ID: "egress", Template: sandbox.Template{Path: rootfs}})
	o.connect(b, box)
	if err := box.Client.WriteFile(b.Context(), "/mnt/data", "measure.py", "",
		strings.NewReader(measureScript)); err != nil {
		b.Fatal(err)
	}
	inside := func(port string) string {
		return box.Must("cd /mnt/data && python3 measure.py example.com " + port + " 2")
	}
	for b.Loop() {
		cmd := exec.Command("chroot", rootfs, "python3", "-c", measureScript, "127.0.0.1", port, "2")
		direct, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		report(b, "direct", string(direct))
		report(b, "http", inside("80"))
		report(b, "any", inside("5432"))
	}
}

// largeSize is what BenchmarkLarge carries each way in one operation, in bytes.
const largeSize = 256 << 20

// BenchmarkLarge measures large downloads and uploads by name. report starts a measurement of
// the CPU time for an operation of that size, and the function that it returns ends it.
func BenchmarkLarge(b *testing.B, d sandbox.Driver, rootfs string, report func(b *testing.B, id string,
	size int64) func()) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 256<<10)
		for range largeSize / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("PUT /take", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 256<<10))
	})
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	b.Cleanup(plain.Close)
	b.Cleanup(secure.Close)
	addr := plain.Listener.Addr().String()
	o := newOutsideOf(b, secure, map[int]string{80: addr, 5432: addr}, "example.com", "example.com:5432")
	box := Start(b, d, sandbox.Spec{ID: "large", Template: sandbox.Template{Path: rootfs}})
	o.connect(b, box)
	if err := box.Client.WriteFile(b.Context(), "/mnt/data", "large.py", "",
		strings.NewReader(largeScript)); err != nil {
		b.Fatal(err)
	}
	for _, port := range []string{"80", "5432"} {
		for _, way := range []string{"down", "up"} {
			b.Run(way+"/"+port, func(b *testing.B) {
				b.SetBytes(largeSize)
				defer report(b, "large", largeSize)()
				for b.Loop() {
					box.Must(fmt.Sprintf("python3 /mnt/data/large.py example.com %s %s %d", port, way, largeSize))
				}
			})
		}
	}
}

const largeScript = `
import socket, sys
host, port, way, size = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
s, buf = socket.create_connection((host, port)), bytearray(256 << 10)
if way == "down":
    s.sendall(f"GET /large HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    got = 0
    while n := s.recv_into(buf): got += n
    assert got > size, got
else:
    s.sendall(f"PUT /take HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode())
    for _ in range(size // len(buf)): s.sendall(buf)
    assert b" 200 " in s.recv(4096)
`

// report reports the output of measure.py.
func report(b *testing.B, way, printed string) {
	b.Helper()
	var p50, p99, down, up float64
	if _, err := fmt.Sscan(printed, &p50, &p99, &down, &up); err != nil {
		b.Fatalf("measure.py printed %q", printed)
	}
	b.ReportMetric(p50, way+"-p50-ms")
	b.ReportMetric(p99, way+"-p99-ms")
	b.ReportMetric(down, way+"-down-MB/s")
	b.ReportMetric(up, way+"-up-MB/s")
}
