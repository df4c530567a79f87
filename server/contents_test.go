package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/s3test"
	"github.com/berth-run/berth/server/doctor"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store/sqlite"
)

// onBucket returns the configuration of a server with its blobs in a bucket.
func onBucket(url string) string {
	return "driver: unsafe-local\ncontainers: {pool: 0}\n" + "blobs: " + url + "\n"
}

// sent sends a request without a body and returns the status and the body of the answer.
func sent(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// startsNot fails the test unless New returns an error that contains want.
func startsNot(t *testing.T, state, config, want string) {
	t.Helper()
	c, err := configure(t, config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Options{State: state, Config: c, Build: berth.Build{Version: "test"},
		Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
	if err == nil {
		s.Close(context.WithoutCancel(t.Context()))
	}
}

// stopServer closes a server of a test.
func stopServer(s *Server, web *httptest.Server) {
	web.Close()
	s.Close(context.Background())
}

// Files, uploads, skills and snapshots of a server are in its bucket, and nothing of them is in its
// state directory.
func TestBlobsOnBucket(t *testing.T) {
	s3, dir := s3test.Start(t), t.TempDir()
	s, web := testServer(t, dir, onBucket(s3.Bucket("berth")))
	defer destroyAll(t, dir)
	content := strings.Repeat("canary ", 2<<20) // of several parts
	id, err := upload(web.URL, content)
	if err != nil {
		t.Fatal(err)
	}
	box, err := idOf(send("POST", web.URL+"/v1/containers", "application/json", strings.NewReader(`{"name":"mine"}`)))
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := idOf(send("POST", web.URL+"/v1/containers/"+box+"/snapshots", "application/json",
		strings.NewReader("{}")))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, key := range s3.Objects("berth") {
		kind, _, _ := strings.Cut(key, "/")
		kinds[kind]++
		raw, err := os.ReadFile(s3.Path("berth", key))
		if err != nil || strings.Contains(string(raw), "canary") {
			t.Errorf("%s has content that is not sealed, %v", key, err)
		}
	}
	if kinds["files"] != 1 || kinds["snapshots"] != 1 || kinds["berth-owner.json"] != 1 {
		t.Errorf("objects: got %v", kinds)
	}
	if some, err := state.HasBlobs(dir); some || err != nil {
		t.Errorf("the state directory has contents: %t, %v", some, err)
	}
	if refs, err := state.References(t.Context(), dir); err != nil || len(refs) == 0 {
		t.Errorf("References: got %v, %v, want the template of the snapshot", refs, err)
	}
	stopServer(s, web)

	// The next start finds all of it.
	_, web = testServer(t, dir, onBucket(s3.Bucket("berth")))
	if got, err := send("GET", web.URL+"/v1/files/"+id+"/content", "", nil); err != nil || got != content {
		t.Errorf("the file: got %d bytes, %v", len(got), err)
	}
	for _, path := range []string{"/v1/files/" + id, "/v1/snapshots/" + snapshot} {
		if _, err := send("DELETE", web.URL+path, "", nil); err != nil {
			t.Error(err)
		}
	}
	if got := s3.Objects("berth"); !slices.Equal(got, []string{"berth-owner.json"}) {
		t.Errorf("objects after the deletions: got %q", got)
	}
}

// While the bucket cannot be reached, requests that need it get 503 and /readyz says why. A
// deletion still destroys the key. Nothing is lost, and the service returns by itself, also after
// a restart in between.
func TestBucketOutage(t *testing.T) {
	s3, state := s3test.Start(t), t.TempDir()
	at := s3.Bucket("berth")
	s, web := testServer(t, state, onBucket(at))
	defer destroyAll(t, state)
	var ids []string
	for i := range 2 {
		id, err := upload(web.URL, fmt.Sprint("content ", i))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	s3.Stop()
	down := func(web *httptest.Server) {
		t.Helper()
		if status, text := sent(t, "GET", web.URL+"/v1/files/"+ids[0]+"/content"); status != 503 ||
			!strings.Contains(text, "storage") {
			t.Errorf("a download: got %d %s, want 503", status, text)
		}
		if _, err := upload(web.URL, "later"); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("an upload: got %v, want 503", err)
		}
		status, text := sent(t, "GET", web.URL+"/readyz")
		var ready struct {
			Checks map[string]struct{ Status, Message string }
		}
		if err := json.Unmarshal([]byte(text), &ready); err != nil || status != 503 ||
			ready.Checks["blobs"].Status == "ok" {
			t.Errorf("/readyz: got %d %s, %v", status, text, err)
		}
		if status, text := sent(t, "GET", web.URL+"/v1/files/"+ids[0]); status != 200 {
			t.Errorf("a file's record: got %d %s", status, text)
		}
	}
	down(web)
	if status, text := sent(t, "DELETE", web.URL+"/v1/files/"+ids[1]); status != 200 {
		t.Errorf("a deletion: got %d %s", status, text)
	}
	if status, _ := sent(t, "GET", web.URL+"/v1/files/"+ids[1]); status != 404 {
		t.Errorf("the deleted file: got %d", status)
	}
	stopServer(s, web)
	_, web = testServer(t, state, onBucket(at))
	down(web)
	s3.Restart()
	for status := 0; status != 200; time.Sleep(20 * time.Millisecond) { // until the test ends
		status, _ = sent(t, "GET", web.URL+"/v1/files/"+ids[0]+"/content")
	}
	if got, err := send("GET", web.URL+"/v1/files/"+ids[0]+"/content", "", nil); err != nil || got != "content 0" {
		t.Errorf("after the outage: got %q, %v", got, err)
	}
	id, err := upload(web.URL, "afterwards")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := send("GET", web.URL+"/v1/files/"+id+"/content", "", nil); err != nil || got != "afterwards" {
		t.Errorf("a new file after the outage: got %q, %v", got, err)
	}
}

// A server does not start with a bucket of another state, without the bucket of its own, or with
// contents elsewhere: it would not find them, or delete those of others.
func TestWrongBucketIsRefused(t *testing.T) {
	s3, state := s3test.Start(t), t.TempDir()
	at := s3.Bucket("berth")
	s, web := testServer(t, state, onBucket(at))
	if _, err := upload(web.URL, "x"); err != nil {
		t.Fatal(err)
	}
	stopServer(s, web)
	const plain = "driver: unsafe-local\ncontainers: {pool: 0}\n"
	startsNot(t, t.TempDir(), onBucket(at), "belongs to another state")
	startsNot(t, state, plain, "the blobs of this state are in s3://berth")
	startsNot(t, state, onBucket(s3.Bucket("other")), "the blobs of this state are in s3://berth")
	startsNot(t, state, onBucket(s3test.URL(s3.Addr, "nonesuch")), "the blobs of this state are in s3://berth")
	startsNot(t, t.TempDir(), onBucket(s3test.URL(s3.Addr, "nonesuch")), "does not exist")

	// The bucket was emptied.
	if err := errors.Join(os.Rename(s3.Path("berth"), s3.Path("lost")), os.Mkdir(s3.Path("berth"), 0o700)); err != nil {
		t.Fatal(err)
	}
	startsNot(t, state, onBucket(at), "berth-owner.json")
	if err := errors.Join(os.Remove(s3.Path("berth")), os.Rename(s3.Path("lost"), s3.Path("berth"))); err != nil {
		t.Fatal(err)
	}
	s, web = testServer(t, state, onBucket(at))
	stopServer(s, web)

	// The contents are in the state directory.
	local := t.TempDir()
	s, web = testServer(t, local, plain)
	if _, err := upload(web.URL, "x"); err != nil {
		t.Fatal(err)
	}
	stopServer(s, web)
	startsNot(t, local, onBucket(s3.Bucket("third")), "are in its directory")
	s, web = testServer(t, local, plain) // after a refusal, it starts as before
	stopServer(s, web)
}

// A state that was refused by a bucket may begin elsewhere.
func TestPlaceAfterRefusal(t *testing.T) {
	s3, dir := s3test.Start(t), t.TempDir()
	startsNot(t, dir, onBucket(s3test.URL(s3.Addr, "nonesuch")), "does not exist")
	db, err := state.OpenStore(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if p, err := state.ReadPlace(t.Context(), db); err != nil || p.URL != "" {
		t.Errorf("got %+v, %v, want the state directory", p, err)
	}
}

// Doctor says whether the bucket can be used, and changes nothing in it.
func TestExamineBucket(t *testing.T) {
	s3, state := s3test.Start(t), t.TempDir()
	at := s3.Bucket("berth")
	if f := doctor.ExamineBucket(t.Context(), state, at); !f.OK || !strings.Contains(f.Detail, "not in use yet") ||
		len(s3.Objects("berth")) > 0 {
		t.Errorf("a new bucket: got %+v, objects %q", f, s3.Objects("berth"))
	}
	s, web := testServer(t, state, onBucket(at))
	stopServer(s, web)
	if f := doctor.ExamineBucket(t.Context(), state, at); !f.OK || !strings.Contains(f.Detail, "belongs to this state") {
		t.Errorf("its bucket: got %+v", f)
	}
	for name, f := range map[string]doctor.Finding{
		"another state's": doctor.ExamineBucket(t.Context(), t.TempDir(), at),
		"another bucket":  doctor.ExamineBucket(t.Context(), state, s3.Bucket("other")),
		"no bucket":       doctor.ExamineBucket(t.Context(), t.TempDir(), s3test.URL(s3.Addr, "nonesuch")),
	} {
		if f.OK || f.Advice == "" {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	s3.Stop()
	if f := doctor.ExamineBucket(t.Context(), state, at); f.OK || strings.Contains(f.Detail, s3test.SecretKey) {
		t.Errorf("an outage: got %+v", f)
	}
}
