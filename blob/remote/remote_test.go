package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/internal/s3test"
)

// open opens a bucket for a state.
func open(t *testing.T, url, owner string, log *slog.Logger) *remote.Bucket {
	t.Helper()
	at, err := remote.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := remote.Open(remote.Options{At: at, Owner: owner, Claim: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// section returns the contents of notes in a bucket.
func section(t *testing.T, b *remote.Bucket, log *slog.Logger) *blob.Bucket {
	t.Helper()
	return blob.NewBucket(b.Section("notes"), "note", log)
}

func write(ctx context.Context, c *blob.Bucket, r blob.Ref, key blob.Key, content []byte) error {
	return c.Write(ctx, r, key, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func read(ctx context.Context, c *blob.Bucket, r blob.Ref, key blob.Key, size int) ([]byte, error) {
	content, err := c.OpenSeeker(ctx, r, key, int64(size))
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return io.ReadAll(content)
}

var mine = blob.Ref{Project: "proj_mine", ID: "note_1"}

// random returns n bytes that do not compress.
func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// A content is sealed, and is read whole and from any offset; a large one is sent in parts.
func TestContents(t *testing.T) {
	s3 := s3test.Start(t)
	for name, size := range map[string]int{"empty": 0, "small": 100, "large": 21 << 20} {
		t.Run(name, func(t *testing.T) {
			b := open(t, s3.Bucket(name+"-bucket", "prefix=below"), "state_a", nil)
			c, key, content := section(t, b, nil), blob.NewKey(), random(size)
			if err := write(t.Context(), c, mine, key, content); err != nil {
				t.Fatal(err)
			}
			if got, err := read(t.Context(), c, mine, key, size); err != nil || !bytes.Equal(got, content) {
				t.Errorf("got %d bytes, %v, want those written", len(got), err)
			}
			if want := []string{"below/berth-owner.json", "below/notes/proj_mine/note_1"}; !slices.Equal(
				s3.Objects(name+"-bucket"), want) {
				t.Errorf("objects: got %q, want %q", s3.Objects(name+"-bucket"), want)
			}
			raw, err := os.ReadFile(s3.Path(name+"-bucket", "below/notes/proj_mine/note_1"))
			if err != nil || size > 0 && bytes.Contains(raw, content[:min(size, 64)]) {
				t.Errorf("the content is stored unsealed, %v", err)
			}
			if n, err := c.Size(t.Context(), mine); err != nil || n != int64(len(raw)) {
				t.Errorf("Size: got %d, %v, want %d", n, err, len(raw))
			}
			if size > 1000 {
				r, err := c.OpenSeeker(t.Context(), mine, key, int64(size))
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				part := make([]byte, 1000)
				for _, at := range []int64{int64(size) - 1000, 5 << 20, 7} {
					if _, err := r.Seek(at, io.SeekStart); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(r, part); err != nil || !bytes.Equal(part, content[at:at+1000]) {
						t.Errorf("at %d: got other bytes, %v", at, err)
					}
				}
			}
			if err := errors.Join(c.Remove(t.Context(), mine), c.Remove(t.Context(), mine)); err != nil {
				t.Error(err)
			}
			if _, err := read(t.Context(), c, mine, key, size); berth.ErrorCode(err) != berth.CodeCorrupt {
				t.Errorf("a missing content: got %v, want %s", err, berth.CodeCorrupt)
			}
		})
	}
}

// A content whose writer fails or is cancelled is not there, in whole or in part.
func TestWriteFails(t *testing.T) {
	s3 := s3test.Start(t)
	c := section(t, open(t, s3.Bucket("notes"), "state_a", nil), nil)
	failed := errors.New("failed")
	for _, size := range []int{0, 100, 30 << 20} {
		err := c.Write(t.Context(), mine, blob.NewKey(), func(w io.Writer) error {
			_, err := w.Write(random(size))
			return errors.Join(err, failed)
		})
		if !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
	}
	if got := s3.Objects("notes"); slices.ContainsFunc(got, func(k string) bool {
		return strings.Contains(k, "note_1")
	}) {
		t.Errorf("objects: got %q", got)
	}
}

// Changed bytes of the bucket are noticed.
func TestDamage(t *testing.T) {
	s3 := s3test.Start(t)
	c, key, content := section(t, open(t, s3.Bucket("notes"), "state_a", nil), nil), blob.NewKey(), random(1<<20)
	if err := write(t.Context(), c, mine, key, content); err != nil {
		t.Fatal(err)
	}
	path := s3.Path("notes", "notes/proj_mine/note_1")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // keeps the attributes
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(raw); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := read(t.Context(), c, mine, key, len(content)); err == nil {
		t.Error("damage is not noticed")
	}
}

// While the service is down, operations fail as unavailable. They succeed when it is back.
func TestOutage(t *testing.T) {
	s3 := s3test.Start(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b := open(t, s3.Bucket("notes"), "state_a", logger)
	c, key, content := section(t, b, logger), blob.NewKey(), random(1000)
	s3.Stop()
	if err := write(t.Context(), c, mine, key, content); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("before the owner is verified: got %v", err)
	}
	if err := b.Check(t.Context()); err == nil || remote.Refused(err) {
		t.Errorf("Check: got %v, want an outage", err)
	}
	s3.Restart()
	if err := b.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), c, mine, key, content); err != nil {
		t.Fatal(err)
	}
	s3.Stop()
	other := blob.Ref{Project: "proj_mine", ID: "note_2"}
	if err := write(t.Context(), c, other, key, content); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("write: got %v", err)
	}
	if _, err := read(t.Context(), c, mine, key, len(content)); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("read: got %v", err)
	}
	if err := c.Remove(t.Context(), mine); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("remove: got %v", err)
	}
	s3.Restart()
	if got, err := read(t.Context(), c, mine, key, len(content)); err != nil || !bytes.Equal(got, content) {
		t.Errorf("read after the outage: got %d bytes, %v", len(got), err)
	}
	if err := write(t.Context(), c, other, key, content); err != nil {
		t.Errorf("write after the outage: %v", err)
	}
	if strings.Contains(log.String(), s3test.SecretKey) {
		t.Error("the log has the secret key")
	}
}

// A bucket that is gone, or credentials that are wrong, are the operator's to change. A client
// sees an outage, and no content is called damaged.
func TestRefused(t *testing.T) {
	s3 := s3test.Start(t)
	b := open(t, s3.Bucket("notes"), "state_a", nil)
	c, key := section(t, b, nil), blob.NewKey()
	if err := write(t.Context(), c, mine, key, random(100)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s3.Path("notes"), s3.Path("other")); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context()); !remote.Refused(err) {
		t.Errorf("Check without a bucket: got %v", err)
	}
	if _, err := read(t.Context(), c, mine, key, 100); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("read without a bucket: got %v", err)
	}
	if err := os.Rename(s3.Path("other"), s3.Path("notes")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	wrong := open(t, s3.Bucket("notes"), "state_a", nil)
	if err := wrong.Check(t.Context()); !remote.Refused(err) || strings.Contains(err.Error(), s3test.SecretKey) {
		t.Errorf("Check with a wrong key: got %v", err)
	}
	_, err := read(t.Context(), section(t, wrong, nil), mine, key, 100)
	if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeUnavailable || e.RetryAfter != 0 ||
		!strings.Contains(e.Message, "refuses its requests") {
		t.Errorf("read with a wrong key: got %v", err)
	}
	if text := remote.Cause(wrong.Check(t.Context())).Error(); strings.Contains(text, "Its operator") ||
		!strings.Contains(text, "signature") {
		t.Errorf("the operator reads %q", text)
	}
}

// An answer that is cut off is an outage, not damage.
func TestCutOff(t *testing.T) {
	s3 := s3test.Start(t)
	direct := section(t, open(t, s3.Bucket("notes"), "state_a", nil), nil)
	key, content := blob.NewKey(), random(4<<20)
	if err := write(t.Context(), direct, mine, key, content); err != nil {
		t.Fatal(err)
	}
	proxy := newProxy(t, s3.Addr)
	c := section(t, open(t, s3test.URL(proxy.addr, "notes"), "state_a", nil), nil)
	proxy.cut = true
	if _, err := read(t.Context(), c, mine, key, len(content)); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("got %v, want %s", err, berth.CodeUnavailable)
	}
}

// Requests ask for the encryption that the URL names, and carry checksums.
func TestRequests(t *testing.T) {
	s3 := s3test.Start(t)
	s3.Bucket("notes")
	proxy := newProxy(t, s3.Addr)
	c := section(t, open(t, s3test.URL(proxy.addr, "notes", "ssetype=aws:kms", "kmskeyid=key-1"), "state_a", nil), nil)
	for id, size := range map[string]int{"small": 10, "large": 20 << 20} {
		if err := write(t.Context(), c, blob.Ref{Project: "p", ID: id}, blob.NewKey(), random(size)); err != nil {
			t.Logf("the service refuses the encryption: %v", err)
		}
	}
	begun, parts := 0, 0
	for _, r := range proxy.seen() {
		creates := r.Method == "PUT" && !r.URL.Query().Has("partNumber") || r.Method == "POST" &&
			r.URL.Query().Has("uploads")
		if creates {
			begun++
			if got := r.Header.Get("X-Amz-Server-Side-Encryption") + " " +
				r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"); got != "aws:kms key-1" {
				t.Errorf("%s %s: encryption %q", r.Method, r.URL, got)
			}
		}
		if r.Method == "PUT" {
			parts++
			if !strings.HasPrefix(r.Header.Get("X-Amz-Trailer"), "x-amz-checksum-") &&
				r.Header.Get("X-Amz-Checksum-Crc32c") == "" {
				t.Errorf("%s %s has no checksum: %v", r.Method, r.URL, r.Header)
			}
		}
		if r.Method == "GET" && r.URL.Query().Has("list-type") && r.URL.Query().Get("max-keys") != "1" {
			t.Errorf("a listing: %s", r.URL)
		}
	}
	if begun < 3 || parts < 4 { // the owner file, small, large in two parts or more
		t.Errorf("got %d creations, %d bodies", begun, parts)
	}
}

// A proxy passes requests on to the service and records them.
type proxy struct {
	addr string
	cut  bool // cut off large answers

	mu   sync.Mutex
	reqs []*http.Request
}

func (p *proxy) seen() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reqs)
}

func newProxy(t *testing.T, to string) *proxy {
	p := &proxy{}
	target := &url.URL{Scheme: "http", Host: to}
	reverse := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // is signed
	}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	reverse.ModifyResponse = func(r *http.Response) error {
		if p.cut && r.ContentLength > 1<<20 && r.Request.Method == "GET" {
			r.Body = io.NopCloser(io.LimitReader(r.Body, 1<<20))
		}
		return nil
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.reqs = append(p.reqs, r)
		p.mu.Unlock()
		reverse.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.Start()
	t.Cleanup(s.Close)
	p.addr = s.Listener.Addr().String()
	return p
}

// A bucket belongs to the first state. Another one takes it only on request, and the first then stops.
func TestOwner(t *testing.T) {
	s3 := s3test.Start(t)
	at := s3.Bucket("notes")
	first, second := open(t, at, "state_a", nil), open(t, at, "state_b", nil)
	c, theirs, key := section(t, first, nil), section(t, second, nil), blob.NewKey()
	if err := write(t.Context(), c, mine, key, random(100)); err != nil {
		t.Fatal(err)
	}
	if err := second.Check(t.Context()); !errors.Is(err, remote.ErrOwner) || !remote.Refused(err) {
		t.Errorf("Check by another state: got %v", err)
	}
	other := blob.Ref{Project: "proj_mine", ID: "note_2"}
	if err := write(t.Context(), theirs, other, key, nil); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("write by another state: got %v", err)
	}
	if err := theirs.Remove(t.Context(), mine); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("remove by another state: got %v", err)
	}
	if err := second.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Check(t.Context()); !errors.Is(err, remote.ErrOwner) {
		t.Errorf("Check by the former owner: got %v", err)
	}
	if err := c.Remove(t.Context(), mine); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("remove by the former owner: got %v", err)
	}
	if got, err := read(t.Context(), theirs, mine, key, 100); err != nil || len(got) != 100 {
		t.Errorf("read by the new owner: got %d bytes, %v", len(got), err)
	}
}

// Of many states that start at the same time, one becomes the owner of an empty bucket. A bucket with
// objects of others has none.
func TestClaim(t *testing.T) {
	s3 := s3test.Start(t)
	at := s3.Bucket("notes")
	var owners, refused int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		b := open(t, at, fmt.Sprint("state_", i), nil)
		all.Go(func() {
			err := b.Check(t.Context())
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				owners++
			case errors.Is(err, remote.ErrOwner):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if owners != 1 || refused != 7 {
		t.Errorf("got %d owners, %d refused", owners, refused)
	}
	used := s3.Bucket("used")
	for name, text := range map[string]string{"photo.jpg": "x", "berth-owner.json": "{}"} {
		if err := os.WriteFile(s3.Path("used", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := open(t, used, "state_a", nil).Check(t.Context()); !errors.Is(err, remote.ErrOwner) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := os.Remove(s3.Path("used", name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"s3://b": "s3://b", "s3://b?prefix=/a/b/": "s3://b/a/b",
		"s3://b?region=eu-central-1&endpoint=http%3A%2F%2F127.0.0.1%3A9000": "s3://b",
		"s3://b?ssetype=AES256": "s3://b", "s3://b?ssetype=aws:kms&kmskeyid=k": "s3://b",
	} {
		if l, err := remote.Parse(text); err != nil || l.String() != want {
			t.Errorf("%s: got %v, %v, want %s", text, l, err, want)
		}
	}
	for _, text := range []string{"", "b", "gs://b", "s3://", "s3://b/path", "s3://AKIA:hunter2@b", "s3://b?regoin=x",
		"s3://b?endpoint=host:1", "s3://b?endpoint=http://u:hunter2@h",
		"s3://b?ssetype=rot13", "s3://b?kmskeyid=k", "s3://b?use_path_style=maybe", "s3://b?anonymous=true",
		"s3://b:hunter2%zz@", "s3://b?a=hunter2;b=%zz"} {
		if l, err := remote.Parse(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, %v", text, l, err)
		}
	}
}
