package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store/sqlite"
)

// send sends a request and returns the response's body. It returns an error unless the status is 200.
func send(method, url, contentType string, body io.Reader) (string, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return string(text), err
}

// upload uploads a file and returns its id.
func upload(base, content string) (string, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "a.txt")
	if err == nil {
		_, err = io.WriteString(part, content)
	}
	if err := errors.Join(err, form.WriteField("purpose", "user_data"), form.Close()); err != nil {
		return "", err
	}
	return idOf(send("POST", base+"/v1/files", form.FormDataContentType(), &body))
}

func idOf(text string, err error) (string, error) {
	var made struct{ ID string }
	if err == nil {
		err = json.Unmarshal([]byte(text), &made)
	}
	return made.ID, err
}

// TestBackup follows docs/backup.md: it backs up a server under load, starts another one on the
// copy, on the same machine, and checks that everything is there.
func TestBackup(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backups", "copy")
	const config = "driver: unsafe-local\ncontainers: {pool: 0}\n"
	_, web := testServer(t, dir, config)
	defer destroyAll(t, dir)
	container, err := idOf(send("POST", web.URL+"/v1/containers", "application/json",
		strings.NewReader(`{"name":"mine"}`)))
	if err != nil {
		t.Fatal(err)
	}
	response := func(i int) (string, error) {
		return idOf(send("POST", web.URL+"/v1/responses", "application/json",
			strings.NewReader(fmt.Sprintf(`{"model":"scripted","input":"number %d."}`, i))))
	}
	var mu sync.Mutex
	responses, files := map[string]int{}, map[string]string{} // acknowledged ones
	record := func(i int) error {
		id, err := response(i)
		if err != nil {
			return err
		}
		content := strings.Repeat(fmt.Sprint(i, " "), 5000)
		file, err := upload(web.URL, content)
		mu.Lock()
		defer mu.Unlock()
		responses[id], files[file] = i, content
		return err
	}
	for i := range 20 {
		if err := record(i); err != nil {
			t.Fatal(err)
		}
	}
	var gone []string
	for range 3 {
		id, err := upload(web.URL, "forgotten")
		if err == nil {
			_, err = send("DELETE", web.URL+"/v1/files/"+id, "", nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, id)
	}

	// Clients create and delete objects during the backup.
	var ended atomic.Bool
	var load sync.WaitGroup
	for n := range 3 {
		load.Go(func() {
			for i := 1000 * (n + 1); !ended.Load(); i++ {
				id, err := upload(web.URL, "short-lived")
				if err == nil {
					_, err = response(i)
				}
				if err == nil {
					_, err = send("DELETE", web.URL+"/v1/files/"+id, "", nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var steps []string
	_, err = state.Backup(t.Context(), dir, to, "test", func(what string) { steps = append(steps, what) })
	if want := "the database, files and snapshots, volumes, the audit record, keys, checksums"; strings.Join(steps,
		", ") != want {
		t.Errorf("progress: got %q, want %s", steps, want)
	}
	ended.Store(true)
	load.Wait()
	if err != nil {
		t.Fatal(err)
	}

	key, err := audit.PublicKey(filepath.Join(dir, state.AuditDir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(filepath.Join(to, state.AuditDir), key, ""); err != nil {
		t.Errorf("audit record of the copy: %v", err)
	}
	there, copied := testServer(t, to, config)
	defer destroyAll(t, to)
	for id, i := range responses {
		text, err := send("GET", copied.URL+"/v1/responses/"+id, "", nil)
		if want := fmt.Sprintf("number %d.", i); err != nil || !strings.Contains(text, want) {
			t.Errorf("a response: got %.300s, %v, want %q in it", text, err, want)
		}
	}
	for id, want := range files {
		if got, err := send("GET", copied.URL+"/v1/files/"+id+"/content", "", nil); err != nil || got != want {
			t.Errorf("a file: got %.30q of %d bytes, %v", got, len(got), err)
		}
	}
	for _, id := range gone {
		if _, err := send("GET", copied.URL+"/v1/files/"+id, "", nil); err == nil {
			t.Error("a deleted file is there again")
		}
	}
	// Every other listed file is readable.
	text, err := send("GET", copied.URL+"/v1/files?limit=10000", "", nil)
	var list struct{ Data []struct{ ID string } }
	if err := errors.Join(err, json.Unmarshal([]byte(text), &list)); err != nil || len(list.Data) < len(files) {
		t.Fatalf("the files: got %d, %v", len(list.Data), err)
	}
	for _, f := range list.Data {
		if _, err := send("GET", copied.URL+"/v1/files/"+f.ID+"/content", "", nil); err != nil {
			t.Errorf("file uploaded during the backup: %v", err)
		}
	}
	if text, err := send("GET", copied.URL+"/v1/containers/"+container, "", nil); err != nil || !strings.Contains(text,
		`"reason":"host"`) {
		t.Errorf("the container at the copy: got %s, %v, want an ended container", text, err)
	}
	if _, err := send("DELETE", copied.URL+"/v1/containers/"+container, "", nil); err != nil {
		t.Error(err)
	}
	if text, err := send("GET", web.URL+"/v1/containers/"+container, "", nil); err != nil || !strings.Contains(text,
		`"status":"running"`) {
		t.Errorf("the container at the original: got %s, %v, want a running container", text, err)
	}
	copied.Close()
	there.Close(context.WithoutCancel(t.Context()))
	if _, err := audit.Verify(filepath.Join(to, state.AuditDir), key, ""); err != nil {
		t.Errorf("audit record, continued by the copy: %v", err)
	}
	if _, err := state.Backup(t.Context(), dir, to, "test", nil); err == nil {
		t.Error("a backup overwrote another one")
	}
}

// A state directory without its keys is refused and not changed.
func TestLostKeysAreRefused(t *testing.T) {
	for _, name := range []string{"seal.key", "berth.keys"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, err := state.OpenStore(t.Context(), dir, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Close(), os.Remove(filepath.Join(dir, name))); err != nil {
				t.Fatal(err)
			}
			if _, err := New(t.Context(), Options{State: dir, Config: &config.Config{Driver: "unsafe-local"},
				Build: berth.Build{Version: "test"}, Log: slog.New(slog.DiscardHandler)}); err == nil ||
				!strings.Contains(err.Error(), "from the same backup") {
				t.Errorf("got %v, want an error that names the file to restore", err)
			}
		})
	}
}
