package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
)

// echoOf returns a handler that echoes the key it was sent, in a form that a test chooses.
func echoOf(form func(rw http.ResponseWriter, key string)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		form(rw, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}
}

// A secret does not reach the sandbox in any part of a response, nor in any common encoding.
func TestEchoes(t *testing.T) {
	for name, form := range map[string]func(rw http.ResponseWriter, key string){
		"HTML": func(rw http.ResponseWriter, key string) { io.WriteString(rw, html.EscapeString(key)) },
		"hex":  func(rw http.ResponseWriter, key string) { io.WriteString(rw, hex.EncodeToString([]byte(key))) },
		"JSON of other hands": func(rw http.ResponseWriter, key string) {
			io.WriteString(rw, strings.NewReplacer(`"`, `\"`, `/`, `\/`).Replace(key))
		},
		"small hex in a URL": func(rw http.ResponseWriter, key string) {
			s := url.QueryEscape(key)
			io.WriteString(rw, strings.NewReplacer("%2F", "%2f", "%2B", "%2b").Replace(s))
		},
		"base64 among others": func(rw http.ResponseWriter, key string) {
			for i := range 6 {
				io.WriteString(rw, base64.StdEncoding.EncodeToString([]byte("abcdefgh"[:i]+key+"xyz"))+"\n")
				io.WriteString(rw, base64.RawURLEncoding.EncodeToString([]byte("abcdefgh"[:i]+key))+"\n")
			}
		},
		"header": func(rw http.ResponseWriter, key string) { rw.Header().Set("X-Key", key) },
		"header name": func(rw http.ResponseWriter, key string) {
			rw.Header()["X-"+hex.EncodeToString([]byte(key))] = []string{"1"}
		},
		"trailer": func(rw http.ResponseWriter, key string) {
			rw.Header().Set("Trailer", "X-Key")
			io.WriteString(rw, "body")
			rw.Header().Set("X-Key", key)
		},
		"trailer that was not announced": func(rw http.ResponseWriter, key string) {
			io.WriteString(rw, "body")
			rw.(http.Flusher).Flush()
			rw.Header().Set(http.TrailerPrefix+"X-Key", key)
		},
		"early hint": func(rw http.ResponseWriter, key string) {
			rw.Header().Set("Link", key)
			rw.WriteHeader(http.StatusEarlyHints)
			rw.Header().Del("Link")
		},
		"compressed, and not": func(rw http.ResponseWriter, key string) {
			rw.Header()["Content-Encoding"] = []string{"identity", "gzip"}
			z := gzip.NewWriter(rw)
			io.WriteString(z, key)
			z.Close()
		},
		"compressed": func(rw http.ResponseWriter, key string) {
			rw.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(rw)
			io.WriteString(z, key)
			z.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, c, placeholder := secretWorld(t, echoOf(form))
			conn, _ := w.connect("api.example.com:443")
			own := tls.Client(conn, &tls.Config{ServerName: "api.example.com",
				RootCAs: c.Transport.(*http.Transport).TLSClientConfig.RootCAs})
			fmt.Fprintf(own,
				"GET / HTTP/1.1\r\nHost: api.example.com\r\nTE: trailers\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n",
				placeholder)
			raw, _ := io.ReadAll(own)
			if !strings.HasPrefix(string(raw), "HTTP/1.1 ") {
				t.Fatalf("got %q", raw)
			}
			if leak := leaked(raw); leak != "" {
				t.Errorf("leaked %s in %q", leak, raw)
			}
		})
	}
}

// leaked returns the form in which raw contains the value, or "".
func leaked(raw []byte) string {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	forms := map[string]string{"the value": value, "HTML": html.EscapeString(value),
		"hex":           hex.EncodeToString([]byte(value)),
		"the end of it": value[5:], "escaped slashes": strings.NewReplacer(`"`, `\"`, `/`, `\/`).Replace(value),
		"base64, shifted by 0": b64(value[:12]), "base64, shifted by 1": b64(value[2:11]),
		"base64, shifted by 2": b64(value[1:13])}
	text := strings.ToLower(string(raw))
	for name, form := range forms {
		if strings.Contains(text, strings.ToLower(form)) {
			return name
		}
	}
	if z, err := gzip.NewReader(bytes.NewReader(raw[max(0, bytes.Index(raw, []byte("\x1f\x8b"))):])); err == nil {
		if plain, _ := io.ReadAll(z); bytes.Contains(plain, []byte(value)) {
			return "compressed"
		}
	}
	return ""
}

// A WebSocket host may echo the fields of its handshake, plain or compressed.
func TestWebSocketEcho(t *testing.T) {
	w, c, placeholder := secretWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if ext := r.Header.Get("Sec-WebSocket-Extensions"); ext != "" {
			t.Errorf("the host is offered %s", ext)
		}
		conn, in, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Key: "+r.Header.Get(
				"Authorization")+"\r\n\r\n")
		word, _ := in.ReadString('!')
		for _, b := range frame(0x81, "key="+r.Header.Get("Authorization")+"; got "+word) {
			conn.Write([]byte{b})
		}
	})
	conn, _ := w.connect("api.example.com:443")
	own := tls.Client(conn, &tls.Config{ServerName: "api.example.com",
		RootCAs: c.Transport.(*http.Transport).TLSClientConfig.RootCAs})
	fmt.Fprintf(own,
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: %s\r\n\r\n",
		placeholder)
	in := bufio.NewReader(own)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v", resp, err)
	}
	if got := resp.Header.Get("X-Key"); got != placeholder {
		t.Errorf("header: got %q", got)
	}
	io.WriteString(own, placeholder+"!") // messages are not filled in
	raw, _ := io.ReadAll(in)
	want := string(frame(0x81, "key="+strings.Repeat("*", len(value))+"; got "+placeholder+"!"))
	if string(raw) != want {
		t.Errorf("got %q, want %q: of equal length", raw, want)
	}
}

// A secret is not sent unencrypted to a public host.
func TestSecretsInTheClear(t *testing.T) {
	w, _, placeholder := secretWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.gate.Policy = policy(t, false, "api.example.com", "api.example.com:8080", "private vault.corp")
	w.gate.Secrets = append(w.gate.Secrets, Secret{Domain: "vault.corp", Name: "API_KEY", Value: value,
		Placeholder: placeholder})
	got := ""
	addr, _ := serve(t, false, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") })
	w.host("api.example.com", "93.184.216.34", 80, addr)
	w.host("api.example.com", "93.184.216.34", 8080, addr)
	w.host("vault.corp", "10.0.0.3", 80, addr)
	for _, at := range []string{"api.example.com", "api.example.com:8080"} {
		get(t, w.httpClient(nil), "http://"+at+"/", "Authorization", placeholder)
		if got != placeholder {
			t.Errorf("%s, a public host, got %q in the clear", at, got)
		}
	}
	get(t, w.httpClient(nil), "http://vault.corp/", "Authorization", placeholder)
	if got != value {
		t.Errorf("a host in the operator's own network got %q", got)
	}
}

// A body arrives complete, and filled in if it is text, however it is sent.
func TestFilledBodies(t *testing.T) {
	var got string
	w, c, placeholder := secretWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		got = fmt.Sprintf("%v %d %s", err, len(b), b[:min(len(b), 100)])
	})
	zipped := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, s)
		z.Close()
		return b.String()
	}
	chunks := func(s string) (out string) {
		for i := range len(s) {
			out += "1;x=y\r\n" + s[i:i+1] + "\r\n"
		}
		return out + "0\r\nX-Trailer: " + placeholder + "\r\n\r\n"
	}
	filled, plain := "key="+value, "key="+placeholder
	for name, c2 := range map[string]struct{ fields, body, want string }{
		"whole": {"Content-Type: text/plain\r\nContent-Length: " + fmt.Sprint(len(plain)), plain,
			fmt.Sprintf("<nil> %d %s", len(filled), filled)},
		"in chunks": {"Content-Type: text/plain\r\nTransfer-Encoding: chunked", chunks(plain),
			fmt.Sprintf("<nil> %d %s", len(filled), filled)},
		"not text": {"Content-Type: image/png\r\nContent-Length: " + fmt.Sprint(len(plain)), plain,
			fmt.Sprintf("<nil> %d %s", len(plain), plain)},
		"compressed": {"Content-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: " +
			fmt.Sprint(len(zipped(plain))), zipped(plain), fmt.Sprintf("<nil> %d %s", len(zipped(plain)),
			zipped(plain))},
	} {
		got = ""
		conn, _ := w.connect("api.example.com:443")
		own := tls.Client(conn, &tls.Config{ServerName: "api.example.com",
			RootCAs: c.Transport.(*http.Transport).TLSClientConfig.RootCAs})
		fmt.Fprintf(own, "POST / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n%s\r\n\r\n", c2.fields)
		for _, b := range []byte(c2.body) { // one packet for each byte
			own.Write([]byte{b})
		}
		io.Copy(io.Discard, own)
		if got != c2.want {
			t.Errorf("%s: got %q, want %q", name, got, c2.want)
		}
	}
}

// Neither many placeholders nor an endless header make the server hold a large request.
func TestFillingIsBounded(t *testing.T) {
	heads, bodies := make(chan int, 1), make(chan int, 1)
	w, c, placeholder := secretWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		n := len(r.URL.RawQuery)
		for _, values := range r.Header {
			for _, v := range values {
				n += len(v)
			}
		}
		b, _ := io.Copy(io.Discard, r.Body)
		heads <- n
		bodies <- int(b)
	})
	w.gate.Secrets[0].Value = strings.Repeat("0123456789abcdef", 512)
	for _, n := range []int{1, 1000, 60000} {
		resp, err := c.Post("https://api.example.com/?"+strings.Repeat(placeholder, min(n, 300)), "text/plain",
			strings.NewReader(strings.Repeat(placeholder, n)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if head, body := <-heads, <-bodies; head > 2*maxHeaderFill || body > 2*maxFilled || n == 1 &&
			(head < 8<<10 || body != 8<<10) {
			t.Errorf("%d placeholders: the host got a header of %d bytes and a body of %d", n, head, body)
		}
	}
	if status, _ := get(t, c, "https://api.example.com/", "X-Long",
		strings.Repeat("x", 2*maxHeader)); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long header: got %d", status)
	}
}

// Only a few large bodies are held while they arrive; small ones pass.
func TestLargeBodiesWait(t *testing.T) { synctest.Test(t, testLargeBodiesWait) }

func testLargeBodiesWait(t *testing.T) {
	w, c, placeholder := secretWorld(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	large := strings.Repeat("x", smallBody+1)
	post := func(body io.Reader) error {
		resp, err := c.Post("https://api.example.com/", "text/plain", body)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	release, err := w.gate.holdLarge(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
	var ends []func()
	for range largeBodies {
		body, more := io.Pipe()
		go post(body)
		io.WriteString(more, large)
		ends = append(ends, func() { more.Close() })
	}
	synctest.Wait()
	if n := len(w.gate.large.places); n != largeBodies {
		t.Fatalf("%d bodies are held", n)
	}
	done := make(chan error, 1)
	go func() { done <- post(strings.NewReader(large)) }()
	if err := post(strings.NewReader(placeholder)); err != nil {
		t.Error(err)
	}
	synctest.Wait()
	select {
	case <-done:
		t.Error("one more body is held")
	default:
	}
	for _, end := range ends {
		end()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
