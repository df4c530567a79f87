package egress

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Servers that print their port and answer each request with "vhost=" and the Host that it
// names.
const (
	nodeHost = `const s = require("http").createServer((q, r) => r.end("vhost=" + q.headers.host))
s.listen(0, "127.0.0.1", () => console.log(s.address().port))`
	pythonHost = `
import http.server, socketserver
class Host(http.server.BaseHTTPRequestHandler):
    def __getattr__(self, name):
        if not name.startswith("do_"): raise AttributeError(name)
        return self.answer
    def answer(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("vhost=%s" % self.headers.get("Host")).encode())
    def log_message(self, *_): pass
class Server(socketserver.ThreadingTCPServer):
    def handle_error(self, *_): pass
s = Server(("127.0.0.1", 0), Host)
print(s.server_address[1], flush=True)
s.serve_forever()`
)

// lenientHosts starts the HTTP servers of other languages and returns their addresses.
func lenientHosts(t *testing.T) map[string]string {
	hosts := map[string]string{}
	for name, command := range map[string][]string{"node": {"node", "-e", nodeHost},
		"python": {"python3", "-c", pythonHost}} {
		if _, err := exec.LookPath(command[0]); err != nil {
			t.Logf("%s is not installed", command[0])
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cancel(); _ = cmd.Wait() })
		port, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		hosts[name] = "127.0.0.1:" + strings.TrimSpace(port)
	}
	if len(hosts) == 0 {
		t.Skip("neither node nor python3 is installed")
	}
	return hosts
}

// sendRaw sends words and returns the response.
func sendRaw(conn net.Conn, words string) string {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		_, _ = io.WriteString(conn, words)
		_ = closeWrite(conn)
	}()
	b, _ := io.ReadAll(conn)
	return string(b)
}

// oddRequests returns requests to evil.com in forms that some host accepts.
func oddRequests() map[string]string {
	const fields = "\r\nHost: evil.com\r\nConnection: close\r\n\r\n"
	const get = "GET /admin HTTP/1.1" + fields
	odd := map[string]string{
		"empty lines":            strings.Repeat("\r\n", 40) + get,
		"more than a buffer":     strings.Repeat("\r\n", 6000) + get,
		"line feeds":             strings.Repeat("\n", 50) + get,
		"carriage returns":       "\r\r\r" + get,
		"lines of spaces":        " \r\n\t\r\n" + get,
		"tabs between":           "GET\t/admin\tHTTP/1.1" + fields,
		"Unicode spaces between": "PURGE\xa0/admin\x85HTTP/1.1" + fields,
		"no version":             "GET /admin" + fields,
		"no version, rare":       "LOCK /admin" + fields,
		"RTSP":                   "DESCRIBE rtsp://x/ RTSP/1.0" + fields,
		"RTSP, a path":           "PLAY /admin RTSP/1.0" + fields,
		"Icecast":                "SOURCE /admin ICE/1.0" + fields,
		"another scheme":         "LOCK foo://x/ HTTP/1.1" + fields,
		"another scheme, 0.9":    "LOCK foo://x/" + fields,
		"no path":                "BREW admin HTTP/1.1" + fields,
		"a star":                 "LOCK * HTTP/1.1" + fields,
		"lower case":             "get /admin HTTP/1.1" + fields,
		"a long target":          "BREW /" + strings.Repeat("a", 5000) + " HTTP/1.1" + fields,
		"a long query":           "BREW ?" + strings.Repeat("a", 5000) + " HTTP/1.1" + fields,
		"NUL before":             "\x00GET /admin HTTP/1.1" + fields,
		"NUL within":             "LO\x00CK /ad\x00min HTTP/1.1" + fields,
		"a mark of byte order":   "\xef\xbb\xbfGET /admin HTTP/1.1" + fields,
		"a handshake's byte":     "\x16GET /admin HTTP/1.1" + fields,
		"a method of no token":   "(GET) /admin HTTP/1.1" + fields,
		"a long method":          strings.Repeat("A", 100) + " /admin HTTP/1.1" + fields,
		"spaces at the end":      "LOCK /admin HTTP/1.1  \t" + fields,
		"line feeds only":        strings.ReplaceAll("LOCK /admin HTTP/1.1"+fields, "\r", ""),
		"a folded field":         "GET /admin HTTP/1.1\r\nX: a\r\n b" + fields,
		"a preface of a proxy":   "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + get,
		"a binary preface": proxyPreface + "\x21\x11\x00\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x00\x01\x00\x02" +
			get,
	}
	for _, c := range []byte(" \t\v\f\x1c\x1d\x1e\x1f\x85\xa0\x7f") {
		odd[fmt.Sprintf("%#x before", c)] = string([]byte{c}) + get
	}
	return odd
}

// On a port that a rule names, a request in an odd form for a refused host reaches neither Node
// nor Python, nor any more lenient host.
func TestOddRequestsToLenientHosts(t *testing.T) {
	hosts := lenientHosts(t)
	taken := map[string]int{}
	for name, words := range oddRequests() {
		for kind, addr := range hosts {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(sendRaw(conn, words), "vhost=evil.com") {
				taken[kind]++
			}
		}
		var s sniffer
		if s.add([]byte(words)) != isHTTP {
			t.Errorf("%s: %.100q is not recognized as a request", name, words)
		}
	}
	for kind := range hosts {
		if taken[kind] < 8 {
			t.Errorf("%s accepts only %d of the odd requests: this test proves little", kind, taken[kind])
		}
	}
	w := newWorld(t, policy(t, false, "private node.corp:8080", "private python.corp:8080"))
	for kind, addr := range hosts {
		w.host(kind+".corp", "10.0.0.3", 8080, addr)
		for name, words := range oddRequests() {
			conn, status := w.connect(kind + ".corp:8080")
			if status != http.StatusOK {
				t.Fatalf("%s: status %d", kind, status)
			}
			if answer := sendRaw(conn, words); strings.Contains(answer, "vhost=") {
				t.Errorf("%s, to %s: got %q", name, kind, answer)
			}
		}
	}
}

// The gate recognizes every first line that Node or Python accept as a request.
func TestRandomRequestsToLenientHosts(t *testing.T) {
	hosts := lenientHosts(t)
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	space := func() string {
		return pick(" ", " ", " ", "\t", "  ", "\v", "\x1f", "\xa0", "\r", "\x00", "")
	}
	for range 400 {
		line := pick("", "", "\r\n", "\n", " ", "\t", "\r\n\r\n", "\x00", "\xa0", "\r", "# \n") +
			pick("GET", "get", "LOCK", "BREW", "PLAY", "SOURCE", "M-SEARCH", "G\x00T", "PRI", "PROXY", "OPTIONS",
				"QUERY", "x") + space() +
			pick("/", "*", "a://b/", "rtsp://b", "http://b/", "admin", "?x", "/a\x00b", "/a b", "TCP4") + space() +
			pick("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "http/1.1", "RTSP/1.0", "ICE/1.0", "HTTP/0.9", "", "HTTP/1.1 ",
				"HTTP/01.1", "X") + pick("\r\n", "\r\n", "\n", "\r")
		words := line + "Host: evil.com\r\nConnection: close\r\n\r\n"
		for kind, addr := range hosts {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(sendRaw(conn, words), "vhost=evil.com") {
				continue
			}
			var s sniffer
			if v := s.add([]byte(words)); v != isHTTP {
				t.Errorf("%s accepts %q as a request, but the gate returns %v", kind, words, v)
			}
		}
	}
}

// Other protocols are not classified as HTTP, and are not delayed to distinguish them.
func TestOtherProtocolsAreNotRequests(t *testing.T) {
	for name, c := range map[string]struct {
		words string
		waits bool // the sniffer needs more bytes
	}{
		"Postgres":     {words: "\x00\x00\x00\x54\x00\x03\x00\x00user\x00me\x00\x00Q\x00\x00\x00\x40INSERT INTO log VALUES ('GET / HTTP/1.1\r\nHost: a\r\n')\x00"},
		"MySQL":        {words: "\x20\x00\x00\x01\x85\xa6\x03\x00\x00\x00\x00\x01\x21root\x00"},
		"MongoDB":      {words: "\x3a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xd4\x07\x00\x00"},
		"MQTT":         {words: "\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04me :"},
		"AMQP":         {words: "AMQP\x00\x00\x09\x01"},
		"Kafka":        {words: "\x00\x00\x00\x20\x00\x12\x00\x03\x00\x00\x00\x01\x00\x02me"},
		"SSH":          {words: "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"},
		"SMTP":         {words: "EHLO mail.example.com\r\n"},
		"IRC":          {words: "NICK me\r\nUSER me 0 * :see http/2 and HTTP/1.1\r\n"},
		"Redis":        {words: "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$14\r\nGET / HTTP/1.1\r\n"},
		"memcached":    {words: "get /key\r\n"},
		"memcached, 2": {words: "set /key 0 60 5\r\nhello\r\n"},
		"FTP":          {words: "USER anonymous\r\n"},
		"git":          {words: "0033git-upload-pack /project.git\x00host=example.com\x00", waits: true},
		"Subversion":   {words: "( 2 ( edit-pipeline svndiff1 ) 36:svn://example.com/repository ) "},
		"beanstalkd":   {words: "put 0 0 60 5\r\nhello\r\n"},
		"DNS":          {words: "\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"},
		"TLS":          {words: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
		"a bare line":  {words: "\r\n \r\nhello\r\n"},
	} {
		var s sniffer
		if v := s.add([]byte(c.words)); v == isHTTP {
			t.Errorf("%s is classified as HTTP", name)
		}
		in := bufio.NewReader(io.MultiReader(strings.NewReader(c.words), blocked{t, name, c.waits}))
		looksLikeHTTP(in)
	}
}

// A blocked is a reader that fails its test when read.
type blocked struct {
	t    *testing.T
	name string
	may  bool
}

func (b blocked) Read([]byte) (int, error) {
	if !b.may {
		b.t.Errorf("%s waits for more bytes", b.name)
	}
	return 0, io.EOF
}

// FuzzSniff checks that a verdict does not change with more bytes, does not depend on how the
// bytes are split, and is never notHTTP for what a lenient host accepts as a request.
func FuzzSniff(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\n", "BREW /x HTTP/1.1\r\n", "\r\nx http://h/ HTTP/1.1\n",
		"EHLO mail.example.com\r\n", "*1\r\n$4\r\nPING\r\n", "x /y\r\n"} {
		f.Add([]byte(s))
	}
	for _, s := range oddRequests() {
		f.Add([]byte(s[:min(len(s), 300)]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var whole, bytewise sniffer
		verdict := whole.add(b)
		for i := range b {
			before := bytewise.verdict
			if v := bytewise.add(b[i : i+1]); before != notYet && v != before {
				t.Fatalf("%q: %v of %d bytes, %v of those before", b, v, i+1, before)
			}
		}
		if bytewise.verdict != verdict {
			t.Fatalf("%q: %v, %v in pieces", b, verdict, bytewise.verdict)
		}
		if readAsRequest(b) && verdict != isHTTP {
			t.Errorf("%q: %v", b, verdict)
		}
	})
}

// readAsRequest reports whether a host like Python's or Node's accepts b as a request: a line of
// three words after empty lines; the last is a version.
func readAsRequest(b []byte) bool {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	line, _, ended := bytes.Cut(b, []byte("\n"))
	words := bytes.FieldsFunc([]byte(latin(line)), func(r rune) bool { return r < 0x100 && isBlank(byte(r)) })
	return ended && len(line) < 1<<16 && len(words) == 3 && bytes.HasPrefix(words[2], []byte("HTTP/1."))
}

// latin returns bytes as the characters of ISO 8859-1.
func latin(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(rune(c))
	}
	return s.String()
}
