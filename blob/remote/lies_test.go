package remote_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth/blob"
)

// A service may list keys that nobody asked for. They are an error or skipped: neither a panic, nor the names of
// contents.
func TestListingThatLies(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for _, key := range []string{"notes/p/a", "", "n", "notes", "other/p/a-long-name", "../notes/p/a", "notes/", "notes//etc/passwd",
		"notes/../../../etc/passwd"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/berth-owner.json") {
				w.Header().Set("Last-Modified", "Fri, 27 Nov 2026 00:00:00 GMT")
				io.WriteString(w, `{"owner":"me","since":"2026-11-27T00:00:00Z"}`)
				return
			}
			fmt.Fprintf(w, `<ListBucketResult><Name>bucket</Name><KeyCount>1</KeyCount><Contents><Key>%s</Key><Size>1</Size>
				<LastModified>2026-11-27T00:00:00.000Z</LastModified></Contents></ListBucketResult>`, key)
		}))
		defer s.Close()
		b := open(t, "s3://bucket?endpoint="+s.URL, "me", nil)
		var listed []blob.Stored
		var failed error
		for content, err := range b.Section("notes").All(t.Context()) {
			if err != nil {
				failed = err
				break
			}
			listed = append(listed, content)
		}
		if key == "notes/p/a" {
			if failed != nil || len(listed) != 1 || listed[0].Key != "p/a" {
				t.Errorf("a content: listed %v, %v", listed, failed)
			}
			continue
		}
		if inside := strings.HasPrefix(key, "notes/"); (failed == nil) != inside || len(listed) > 0 {
			t.Errorf("the key %q: listed %v, %v", key, listed, failed)
		}
	}
}

// A listing may never end: with one page again and again, with pages in turn, or with empty pages of always new
// places. The client gives up, and has taken each content once or twice.
func TestListingWithoutEnd(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	const one = "<Contents><Key>notes/p/%[1]s</Key><Size>1</Size><LastModified>2026-11-27T00:00:00.000Z</LastModified></Contents>"
	for name, tt := range map[string]struct {
		page func(n int) (contents, next string)
		want int // contents at most
	}{
		"one page again":     {func(int) (string, string) { return fmt.Sprintf(one, "a"), "again" }, 1},
		"two contents again": {func(int) (string, string) { return fmt.Sprintf(one+one, "a", "b"), "again" }, 20},
		"pages in turn":      {func(n int) (string, string) { return fmt.Sprintf(one, "ab"[n%2:n%2+1]), fmt.Sprint(n % 2) }, 20},
		"empty pages":        {func(n int) (string, string) { return "", fmt.Sprint(n) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			var lost atomic.Bool // the owner file
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				contents, next := tt.page(int(requests.Add(1)))
				switch {
				case strings.HasSuffix(r.URL.Path, "/berth-owner.json") && !lost.Load():
					w.Header().Set("Last-Modified", "Fri, 27 Nov 2026 00:00:00 GMT")
					io.WriteString(w, `{"owner":"me","since":"2026-11-27T00:00:00Z"}`)
				case strings.HasSuffix(r.URL.Path, "/berth-owner.json"):
					w.WriteHeader(http.StatusNotFound)
					io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
				case r.URL.Query().Has("uploads"):
					fmt.Fprintf(w, `<ListMultipartUploadsResult><Bucket>bucket</Bucket><IsTruncated>true</IsTruncated>
						<NextKeyMarker>a</NextKeyMarker><NextUploadIdMarker>%s</NextUploadIdMarker></ListMultipartUploadsResult>`,
						next)
				default:
					fmt.Fprintf(w, `<ListBucketResult><Name>bucket</Name><IsTruncated>true</IsTruncated>
						<NextContinuationToken>%s</NextContinuationToken>%s</ListBucketResult>`, next, contents)
				}
			}))
			defer s.Close()
			b := open(t, "s3://bucket?endpoint="+s.URL, "me", nil)
			var failed error
			listed := 0
			for _, err := range b.Section("notes").All(t.Context()) {
				if failed = err; err != nil {
					break
				}
				listed++
			}
			if failed == nil || listed > tt.want {
				t.Errorf("listed %d contents, %v", listed, failed)
			}
			if err := b.AbortUploads(t.Context(), time.Now()); err == nil {
				t.Error("uploads without an end: no error")
			}
			lost.Store(true)
			if err := open(t, "s3://bucket?endpoint="+s.URL, "me", nil).Check(t.Context()); err == nil {
				t.Error("the owner of a bucket that is perhaps empty: no error")
			}
		})
	}
}
