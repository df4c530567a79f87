package egress

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A host may have only IPv6 addresses, or list them first.
func TestIPv6Names(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com", "both.example.com"))
	addr, roots := serve(t, true, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "reached") })
	w.host("example.com", "2606:2800:220:1::1", 443, addr)
	w.host("both.example.com", "fd12::1", 443, addr) // private
	w.host("both.example.com", "2606:2800:220:1::2", 443, addr)
	for _, name := range []string{"example.com", "both.example.com"} {
		if status, body := get(t, w.httpClient(roots), "https://"+name+"/"); status != 200 || body != "reached" {
			t.Errorf("%s: got %d %s", name, status, body)
		}
	}
}

// An allowed address is dialled without a lookup, and requests there may use any name.
func TestAddresses(t *testing.T) {
	w := newWorld(t, policy(t, false, "private 10.1.0.0/16", "93.184.216.34"))
	secure, roots := serve(t, true, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) })
	plain, _ := serve(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) })
	for _, a := range []string{"10.1.2.3", "93.184.216.34", "10.2.0.1", "93.184.216.35"} {
		w.host("", a, 443, secure)
		w.host("", a, 80, plain)
	}
	for _, a := range []string{"10.1.2.3", "93.184.216.34", "[::ffff:10.1.2.3]"} {
		if status, body := get(t, w.httpClient(nil), "http://"+a+"/", "Host", "any.test"); status != 200 ||
			body != "any.test" {
			t.Errorf("%s: got %d %s", a, status, body)
		}
		conn, _ := w.connect(a + ":443")
		if err := tls.Client(conn, &tls.Config{ServerName: "example.com", RootCAs: roots}).Handshake(); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	for _, a := range []string{"10.2.0.1", "93.184.216.35", "[fe80::1%25lo]", "[::]"} {
		if _, status := w.connect(a + ":443"); status != http.StatusForbidden {
			t.Errorf("%s: got %d", a, status)
		}
	}
	if len(w.lookups) != 0 {
		t.Errorf("looked up %v", w.lookups)
	}
}

func TestDatagrams(t *testing.T) {
	w := newWorld(t, policy(t, false, "93.184.216.34:53/udp"))
	host, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := host.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = host.WriteTo(append([]byte("re "), buf[:n]...), from)
		}
	}()
	w.host("", "93.184.216.34", 53, host.LocalAddr().String())
	conn, status := w.connectWith("93.184.216.34:53", ProtocolHeader+": udp\r\n")
	if status != http.StatusOK {
		t.Fatalf("got %d", status)
	}
	for _, sent := range []string{"one", "", strings.Repeat("x", 9000)} {
		_, _ = conn.Write(append([]byte{byte(len(sent) >> 8), byte(len(sent))}, sent...))
		head := make([]byte, 2)
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, int(head[0])<<8|int(head[1]))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "re "+sent {
			t.Errorf("got %.20q of %d bytes, %v", got, len(got), err)
		}
	}
	conn.Close()
	if f := w.last(); !f.Allowed || !f.Target.UDP || f.Sent == 0 || f.Received == 0 {
		t.Errorf("flow: got %+v", f)
	}
	if _, status := w.connect("93.184.216.34:53"); status != http.StatusForbidden {
		t.Errorf("a TCP connection to the same address: got %d", status)
	}
	if _, status := w.connectWith("example.com:443", ProtocolHeader+": udp\r\n"); status != http.StatusForbidden {
		t.Errorf("datagrams to a name: got %d", status)
	}
}
