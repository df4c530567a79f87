package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// A host that stores or echoes text and supports ranges could return a secret in pieces that a
// mask does not recognize.
func TestSecretByRanges(t *testing.T) {
	_, c, placeholder := secretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "echo.txt", time.Unix(1, 0), strings.NewReader(r.Header.Get("Authorization")))
	})
	for _, name := range []string{"Range", "range"} {
		for _, ranges := range []string{"bytes=0-3", "bytes=4-7", "bytes=-3", "bytes=0-3,5-8"} {
			status, body := get(t, c, "https://api.example.com/", "Authorization", placeholder, name, ranges,
				"If-Range", `"x"`)
			if status != http.StatusOK || body != placeholder {
				t.Errorf("%s: %s: got %d %q, want the complete text, masked", name, ranges, status, body)
			}
		}
	}
}

// A partial response that was not requested is refused.
func TestPartsOfAnswers(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, key string){
		"206": func(w http.ResponseWriter, key string) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-3/%d", len(key)))
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, key[:4])
		},
		"206 without fields": func(w http.ResponseWriter, key string) {
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, key[:4])
		},
		"200 with a range": func(w http.ResponseWriter, key string) {
			w.Header().Set("Content-Range", fmt.Sprintf(" Bytes 0-3/%d", len(key)))
			io.WriteString(w, key[:4])
		},
		"416 with a range": func(w http.ResponseWriter, key string) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-3/%d", len(key)))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			io.WriteString(w, key[:4])
		},
		"416 with two ranges": func(w http.ResponseWriter, key string) {
			w.Header()["Content-Range"] = []string{"bytes */40", "bytes\t0-3/40"}
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			io.WriteString(w, key[:4])
		},
		"parts": func(w http.ResponseWriter, key string) {
			parts := multipart.NewWriter(w)
			w.Header().Set("Content-Type", "Multipart/ByteRanges ; boundary="+parts.Boundary())
			for _, at := range [][2]int{{0, 4}, {4, 8}} {
				part, _ := parts.CreatePart(nil)
				io.WriteString(part, key[at[0]:at[1]])
			}
			parts.Close()
		},
		"a difference": func(w http.ResponseWriter, key string) {
			w.WriteHeader(http.StatusIMUsed)
			io.WriteString(w, key[:4])
		},
	} {
		_, c, placeholder := secretWorld(t, echoOf(answer))
		status, body := get(t, c, "https://api.example.com/", "Authorization", "Bearer "+placeholder)
		if status != http.StatusBadGateway || strings.Contains(body, value[:4]) {
			t.Errorf("%s: got %d %q", name, status, body)
		}
	}
	// Ranges of other units than bytes, and unsatisfiable ranges, pass.
	for _, status := range []int{http.StatusOK, http.StatusRequestedRangeNotSatisfiable} {
		_, c, _ := secretWorld(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", map[int]string{200: "0-24/*", 416: "bytes */10"}[status])
			w.WriteHeader(status)
		})
		if got, _ := get(t, c, "https://api.example.com/"); got != status {
			t.Errorf("got %d, want %d", got, status)
		}
	}
}

// rawHost is a world whose host has a secret and answers with these bytes, in which KEY is the
// Authorization received. send sends a request with fields and returns the response.
func rawHost(t *testing.T, answer string) (send func(fields string) string) {
	w, c, placeholder := secretWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, strings.ReplaceAll(answer, "KEY", r.Header.Get("Authorization")))
	})
	w.gate.Secrets[0].Value = rawKey
	return func(fields string) string {
		conn, _ := w.connect("api.example.com:443")
		own := tls.Client(conn, &tls.Config{ServerName: "api.example.com",
			RootCAs: c.Transport.(*http.Transport).TLSClientConfig.RootCAs})
		fmt.Fprintf(own, "GET / HTTP/1.1\r\nHost: api.example.com\r\nTE: trailers\r\n%sAuthorization: %s\r\n\r\n",
			fields, placeholder)
		raw, _ := io.ReadAll(own)
		return string(raw)
	}
}

const (
	rawKey    = "f00dfacecafebeef1234"
	upgrade   = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	onceFor   = "Connection: close\r\n"
	switching = "HTTP/1.1 101 Switching Protocols\r\n" + upgrade
)

// Parts of a response besides its body and fields do not carry a secret either.
func TestSecretAroundAnswers(t *testing.T) {
	for name, c := range map[string]struct{ fields, answer string }{
		"reason of a 101":         {upgrade, "HTTP/1.1 101 KEY\r\n" + upgrade + "\r\n"},
		"reason of a 200":         {onceFor, "HTTP/1.1 200 KEY\r\nContent-Length: 0\r\n\r\n"},
		"reason of an odd status": {onceFor, "HTTP/1.1 299 KEY\r\nContent-Length: 0\r\n\r\n"},
		"reason of a hint": {onceFor,
			"HTTP/1.1 103 KEY\r\nLink: KEY\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		"reason of a processing": {onceFor,
			"HTTP/1.1 102 KEY\r\nX-KEY: KEY\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		"trailer of a 101": {upgrade, "HTTP/1.1 101 x\r\nTransfer-Encoding: chunked\r\nTrailer: X-KEY\r\n" +
			upgrade + "\r\n"},
		"chunk extension": {onceFor,
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;KEY=KEY\r\nx\r\n0;KEY\r\n\r\n"},
		"announced trailer": {onceFor,
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-KEY\r\n\r\n1\r\nx\r\n0\r\nX-KEY: KEY\r\n\r\n"},
		"folded field": {onceFor, "HTTP/1.1 200 OK\r\nX-A: a\r\n KEY\r\nContent-Length: 0\r\n\r\n"},
		"cut off":      {onceFor, "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + rawKey[:len(rawKey)-1]},
		"cut off in a chunk": {onceFor, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n" +
			rawKey[:len(rawKey)-1]},
		"cut off frame":           {upgrade, switching + "\r\n\x81\x7d" + rawKey[:len(rawKey)-1]},
		"close frame":             {upgrade, switching + "\r\n\x88\x16\x03\xe8KEY"},
		"ping":                    {upgrade, switching + "\r\n\x89\x14KEY"},
		"frames, then another":    {upgrade, switching + "\r\nHTTP/1.1 200 OK\r\nX: KEY\r\n\r\n"},
		"compressed frame":        {upgrade, switching + "\r\n\xc1\x14KEY"},
		"masked frame":            {upgrade, switching + "\r\n\x81\x94\x00\x00\x00\x00KEY"},
		"frame of no kind":        {upgrade, switching + "\r\n\x83\x14KEY"},
		"large ping":              {upgrade, switching + "\r\n\x89\x7e\x00\x80" + strings.Repeat("x", 108) + "KEY"},
		"ping in pieces":          {upgrade, switching + "\r\n\x09\x0a" + rawKey[:10] + "\x80\x0a" + rawKey[10:]},
		"message in a message":    {upgrade, switching + "\r\n\x01\x0a" + rawKey[:10] + "\x81\x0a" + rawKey[10:]},
		"a length beyond lengths": {upgrade, switching + "\r\n\x81\x7f\x80\x00\x00\x00\x00\x00\x00\x14KEY"},
	} {
		got := rawHost(t, c.answer)(c.fields)
		if !strings.HasPrefix(got, "HTTP/1.1 ") && !(got == "" && strings.HasPrefix(name, "cut off")) {
			t.Errorf("%s: got %q", name, got)
		}
		if text := strings.ToLower(got); strings.Contains(text, rawKey) || strings.Contains(text,
			rawKey[:len(rawKey)-1]) || strings.Contains(text, rawKey[10:]) {
			t.Errorf("%s: leaked the secret in %q", name, got)
		}
	}
}

// A secret split over two fragments is masked, and a ping between them is not delayed.
func TestSecretInFragments(t *testing.T) {
	got := rawHost(t, switching+"\r\n\x01\x0e"+"key\n"+rawKey[:10]+"\x89\x04ping\x80\x0b"+rawKey[10:]+"!")(upgrade)
	_, frames, _ := strings.Cut(got, "\r\n\r\n")
	want := "\x01\x04key\n\x89\x04ping\x80\x15" + strings.Repeat("*", len(rawKey)) + "!"
	if frames != want {
		t.Errorf("got %q, want %q", frames, want)
	}
}

// frame returns a frame as a host sends it.
func frame(first byte, payload string) []byte {
	return append(frameHead(first, len(payload)), payload...)
}

// messages returns the messages and control frames that a host sent, in order, each prefixed
// with the kind of its first frame.
func messages(t *testing.T, raw []byte) (all []string, control []string) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(raw))
	open := false
	for {
		var head [2]byte
		if _, err := io.ReadFull(in, head[:]); err == io.EOF {
			return all, control
		}
		n := uint64(head[1])
		switch n {
		case 126:
			var b [2]byte
			_, _ = io.ReadFull(in, b[:])
			n = uint64(binary.BigEndian.Uint16(b[:]))
		case 127:
			var b [8]byte
			_, _ = io.ReadFull(in, b[:])
			n = binary.BigEndian.Uint64(b[:])
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(in, payload); err != nil {
			t.Fatalf("a frame of %d bytes: %v", n, err)
		}
		final, opcode := head[0]&0x80 != 0, head[0]&0xf
		switch {
		case opcode >= 8:
			control = append(control, fmt.Sprintf("%x ", head[0])+string(payload))
			continue
		case open != (opcode == 0):
			t.Fatalf("frame %x with open message: %v", head[0], open)
		case opcode != 0:
			all = append(all, fmt.Sprintf("%x ", opcode))
		}
		all[len(all)-1] += string(payload)
		open = !final
	}
}

// Masking frames is masking whole messages, however these are split into frames and packets.
func TestFramesAreMaskedAsMessages(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	mask := newMask([]Secret{{Value: rawKey, Placeholder: "P"}, {Value: "aab", Placeholder: "Q"}}).sameLength()
	parts := []string{rawKey, rawKey[:7], rawKey[5:], "aab", "aa", "b", "", "hello ", strings.Repeat("x", 130),
		strings.Repeat("aa", 40000)}
	for range 300 {
		var raw bytes.Buffer
		var want, control []string
		for range 1 + random.IntN(3) {
			text := ""
			for range random.IntN(5) {
				text += parts[random.IntN(len(parts))]
			}
			opcode := byte(1 + random.IntN(2))
			want = append(want, fmt.Sprintf("%x ", opcode)+mask.replace(text))
			for rest := text; ; {
				n := random.IntN(len(rest) + 1)
				if random.IntN(3) == 0 || len(rest) > 1000 && random.IntN(2) == 0 {
					n = len(rest)
				}
				if n == len(rest) {
					raw.Write(frame(0x80|opcode, rest))
					break
				}
				raw.Write(frame(opcode, rest[:n]))
				rest, opcode = rest[n:], 0
				if random.IntN(2) == 0 {
					raw.Write(frame(0x89, rawKey))
					control = append(control, "89 "+strings.Repeat("*", len(rawKey)))
				}
			}
		}
		var from io.Reader = bytes.NewReader(raw.Bytes())
		switch random.IntN(3) {
		case 0:
			from = iotest.HalfReader(from)
		case 1:
			from = iotest.DataErrReader(from)
		}
		got, err := io.ReadAll(&frames{ReadWriteCloser: hostSays{Reader: from}, mask: mask})
		if err != nil {
			t.Fatal(err)
		}
		all, pings := messages(t, got)
		if !slices.Equal(all, want) || !slices.Equal(pings, control) {
			t.Fatalf("masking %.300q: got %.300q", raw.Bytes(), got)
		}
	}
}

type hostSays struct {
	io.Reader
	io.WriteCloser
}
