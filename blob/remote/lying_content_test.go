package remote_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
)

// A keeper is a bucket that keeps what it gets, and answers as a test wants.
type keeper struct {
	mu      sync.Mutex
	objects map[string][]byte
	lie     func(w http.ResponseWriter, r *http.Request, key string, sealed []byte) bool // nil: answer honestly
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Last-Modified", "Fri, 27 Nov 2026 00:00:00 GMT")
	w.Header().Set("ETag", `"a"`)
	if strings.HasSuffix(r.URL.Path, "/berth-owner.json") {
		_, _ = io.WriteString(w, `{"owner":"me","since":"2026-11-27T00:00:00Z"}`)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/bucket/notes/")
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		k.objects[key] = unframe(body, r.Header.Get("X-Amz-Content-Sha256"))
		return
	}
	sealed, ok := k.objects[key]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if k.lie == nil || !k.lie(w, r, key, sealed) {
		give(w, r, sealed)
	}
}

// unframe returns the content of a body that may be in signed chunks.
func unframe(body []byte, form string) []byte {
	if !strings.HasPrefix(form, "STREAMING-") {
		return body
	}
	var content []byte
	for {
		head, rest, ok := bytes.Cut(body, []byte("\r\n"))
		size, _, _ := strings.Cut(string(head), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if !ok || err != nil || n == 0 || int(n) > len(rest) {
			return content
		}
		content, body = append(content, rest[:n]...), bytes.TrimPrefix(rest[n:], []byte("\r\n"))
	}
}

// offset returns the first byte that a request asks for.
func offset(r *http.Request) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
	return n
}

// give answers a request with a content, from the byte on that it asks for.
func give(w http.ResponseWriter, r *http.Request, content []byte) {
	from, status := offset(r), http.StatusOK
	if from > len(content) {
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	if r.Header.Get("Range") != "" {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
		status = http.StatusPartialContent
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(content)-from))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(content[from:])
	}
}

// A service answers requests for a content with other bytes, other sizes, or parts that nobody asked for. What is read
// is the content up to some byte, and then an error: never other bytes, and never a part as if it were the whole.
func TestContentThatLies(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	const part = 64<<10 + 16 // of a sealed content, as package seal divides it
	k := &keeper{objects: map[string][]byte{}}
	s := httptest.NewServer(k)
	defer s.Close()
	c := section(t, open(t, "s3://bucket?endpoint="+s.URL, "me", nil), slog.New(slog.DiscardHandler))
	key, plain, other := blob.NewKey(), random(300<<10), blob.Ref{Project: "proj_mine", ID: "note_2"}
	for ref, content := range map[blob.Ref][]byte{mine: plain, other: make([]byte, len(plain))} {
		of := key
		if ref == other {
			of = blob.NewKey()
		}
		if err := write(t.Context(), c, ref, of, content); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := read(t.Context(), c, mine, key, len(plain)); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("honestly: got %d bytes, %v", len(got), err)
	}
	foreign := k.objects[other.String()]
	changed := func(change func(sealed []byte) []byte) func(http.ResponseWriter, *http.Request, string, []byte) bool {
		return func(w http.ResponseWriter, r *http.Request, _ string, sealed []byte) bool {
			if r.Method == http.MethodHead { // tells the true size
				return false
			}
			give(w, r, change(bytes.Clone(sealed)))
			return true
		}
	}
	size := func(n string) func(http.ResponseWriter, *http.Request, string, []byte) bool {
		return func(w http.ResponseWriter, r *http.Request, _ string, sealed []byte) bool {
			if r.Method != http.MethodHead {
				return false
			}
			w.Header().Set("Content-Length", n)
			return true
		}
	}
	for name, lie := range map[string]func(http.ResponseWriter, *http.Request, string, []byte) bool{
		"nothing":         changed(func([]byte) []byte { return nil }),
		"short by a byte": changed(func(b []byte) []byte { return b[:len(b)-1] }),
		"short by a part": changed(func(b []byte) []byte { return b[:4*part] }),
		"one part":        changed(func(b []byte) []byte { return b[:part] }),
		"longer":          changed(func(b []byte) []byte { return append(b, 0) }),
		"twice":           changed(func(b []byte) []byte { return append(b, b...) }),
		"another content": changed(func([]byte) []byte { return foreign }),
		"parts in other order": changed(func(b []byte) []byte {
			return slices.Concat(b[part:2*part], b[:part], b[2*part:])
		}),
		"a part of another":     changed(func(b []byte) []byte { copy(b[part:2*part], foreign[part:]); return b }),
		"a bit of the last one": changed(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		"a page of words": changed(func(b []byte) []byte {
			return bytes.Repeat([]byte("<html>"), len(b)/6+1)[:len(b)]
		}),
		"larger size":  size(strconv.Itoa(len(foreign) + 1)),
		"smaller size": size(strconv.Itoa(part)),
		"no size":      size("0"),
		"huge size":    size("9223372036854775807"),
	} {
		k.mu.Lock()
		k.lie = lie
		k.mu.Unlock()
		got, err := read(t.Context(), c, mine, key, len(plain))
		verify(t, name, got, err, plain)
		sequential, err := c.Open(t.Context(), mine, key, int64(len(foreign)))
		if err == nil {
			got, err = io.ReadAll(sequential)
			sequential.Close()
		}
		verify(t, name+", in sequence", got, err, plain)
		if err == nil {
			t.Errorf("%s, in sequence: got no error", name)
		}
	}
}

// verify fails the test if what was read is neither the whole content nor the beginning of it with an error.
func verify(t *testing.T, name string, got []byte, err error, plain []byte) {
	t.Helper()
	if err == nil && !bytes.Equal(got, plain) || !bytes.HasPrefix(plain, got) {
		t.Errorf("%s: read %d bytes, other ones or without an error: %v", name, len(got), err)
	}
	if code := berth.ErrorCode(err); err != nil && code != berth.CodeCorrupt && code != berth.CodeUnavailable {
		t.Errorf("%s: got the code %s: %v", name, code, err)
	}
}

// A service ignores from where a part is asked for, or answers with another part.
func TestPartThatLies(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	const part = 64<<10 + 16
	k := &keeper{objects: map[string][]byte{}}
	s := httptest.NewServer(k)
	defer s.Close()
	c := section(t, open(t, "s3://bucket?endpoint="+s.URL, "me", nil), slog.New(slog.DiscardHandler))
	key, plain := blob.NewKey(), random(300<<10)
	if err := write(t.Context(), c, mine, key, plain); err != nil {
		t.Fatal(err)
	}
	shifted := func(by int) func(http.ResponseWriter, *http.Request, string, []byte) bool {
		return func(w http.ResponseWriter, r *http.Request, _ string, sealed []byte) bool {
			if r.Method == http.MethodHead || r.Header.Get("Range") == "" {
				return false
			}
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-", max(0, offset(r)+by)))
			give(w, r, sealed)
			return true
		}
	}
	for name, lie := range map[string]func(http.ResponseWriter, *http.Request, string, []byte) bool{
		"a part before": shifted(-part), "a byte later": shifted(1), "the beginning": shifted(-len(plain)),
		"all of it": func(w http.ResponseWriter, r *http.Request, _ string, sealed []byte) bool {
			r.Header.Del("Range")
			return false
		},
	} {
		k.mu.Lock()
		k.lie = lie
		k.mu.Unlock()
		r, err := c.OpenSeeker(t.Context(), mine, key, int64(len(plain)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = r.Seek(200<<10, io.SeekStart)
		var got []byte
		if err == nil {
			got, err = io.ReadAll(r)
		}
		r.Close()
		if err == nil || len(got) > 0 {
			t.Errorf("%s: got %d bytes, %v", name, len(got), err)
		}
	}
}
