package remote_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

// A listing may never end: each page is that of the first request.
func TestListingWithoutEnd(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/berth-owner.json"):
			w.Header().Set("Last-Modified", "Fri, 27 Nov 2026 00:00:00 GMT")
			io.WriteString(w, `{"owner":"me","since":"2026-11-27T00:00:00Z"}`)
		case r.URL.Query().Has("uploads"):
			io.WriteString(w, `<ListMultipartUploadsResult><Bucket>bucket</Bucket><IsTruncated>true</IsTruncated>
				<NextKeyMarker>a</NextKeyMarker><NextUploadIdMarker>b</NextUploadIdMarker></ListMultipartUploadsResult>`)
		default:
			io.WriteString(w, `<ListBucketResult><Name>bucket</Name><IsTruncated>true</IsTruncated>
				<NextContinuationToken>again</NextContinuationToken><Contents><Key>notes/p/a</Key><Size>1</Size>
				<LastModified>2026-11-27T00:00:00.000Z</LastModified></Contents></ListBucketResult>`)
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
	if failed == nil || listed != 1 {
		t.Errorf("listed %d contents, %v", listed, failed)
	}
	if err := b.AbortUploads(t.Context(), time.Now()); err == nil {
		t.Error("uploads without an end: no error")
	}
}
