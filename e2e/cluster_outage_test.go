package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/store/postgres/pgtest"
)

// TestClusterOutage stops the database of three servers under load, and starts it again, and then
// the bucket. Requests fail clearly during the outage. Every response ends, every command runs once, every
// stream is complete, and no server needs a restart.
func TestClusterOutage(t *testing.T) {
	f := newFleet(t, "5m")
	ctx := within(t, 5*time.Minute)
	const count = 20
	var load sync.WaitGroup
	slots := make(chan struct{}, 6)
	for i := range count {
		load.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			f.one(ctx, i)
		})
	}
	for outage := range 2 {
		f.servers[0].waitUntil("commands have run", func() bool {
			_, err := os.Stat(f.counter)
			return err == nil && len(f.lines()) > 5*outage
		})
		if err := f.db.Stop(); err != nil {
			t.Fatal(err)
		}
		for i, s := range f.servers {
			status, err := call(ctx, "POST", s.url+"/v1/responses", "", map[string]any{"model": "scripted",
				"input": "hello"}, nil)
			if status != http.StatusServiceUnavailable || err == nil || !strings.Contains(err.Error(), `"code"`) ||
				strings.Contains(err.Error(), pgtest.Password) {
				t.Errorf("server %d without a database: status %d, %v", i, status, err)
			}
		}
		if err := f.db.Run(); err != nil {
			t.Fatal(err)
		}
	}
	f.bucket.Stop()
	var file struct{ ID string }
	if status, err := upload(ctx, f.servers[0].url, &file); status != http.StatusServiceUnavailable || err == nil {
		t.Errorf("an upload without a bucket: status %d, %v", status, err)
	}
	f.bucket.Restart()
	for file.ID == "" && ctx.Err() == nil {
		_, _ = upload(ctx, f.servers[0].url, &file)
	}
	if text := fetch(t, f.servers[1].url+"/v1/files/"+file.ID+"/content"); text != "kept" {
		t.Errorf("a file after the bucket returned: %q", text)
	}
	load.Wait()
	counts := f.lines()
	for i := range count {
		for _, step := range steps(i) {
			if counts[step] != 1 {
				t.Errorf("%s ran %d times", step, counts[step])
			}
		}
	}
	f.verify()
}

// upload uploads a file with the content "kept".
func upload(ctx context.Context, at string, answer any) (status int, err error) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	file, err := w.CreateFormFile("file", "note.txt")
	if err == nil {
		_, err = io.WriteString(file, "kept")
	}
	if err = errors.Join(err, w.WriteField("purpose", "user_data"), w.Close()); err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/v1/files", &form)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", w.FormDataContentType())
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	return resp.StatusCode, err
}
