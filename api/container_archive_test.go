package api_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// untar returns the files of an archive, "name mode content".
func untar(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	got := map[string]string{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		check(t, err)
		text, err := io.ReadAll(in)
		check(t, err)
		got[h.Name] = string(text)
	}
}

func TestArchive(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	at := "/v1/containers/" + h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	for name, text := range map[string]string{"a.txt": "hello", "out/b.csv": "1,2"} {
		form, kind := upload(name, strings.NewReader(text))
		h.call(200, "POST", at+"/files", form, kind)
	}
	all := map[string]string{"a.txt": "hello", "out/b.csv": "1,2"}
	read := map[string]func(body []byte) map[string]string{
		"":    func(body []byte) map[string]string { return untar(t, bytes.NewReader(body)) },
		"tar": func(body []byte) map[string]string { return untar(t, bytes.NewReader(body)) },
		"tar.gz": func(body []byte) map[string]string {
			z, err := gzip.NewReader(bytes.NewReader(body))
			check(t, err)
			return untar(t, z)
		},
		"zip": func(body []byte) map[string]string {
			z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
			check(t, err)
			got := map[string]string{}
			for _, f := range z.File {
				r, err := f.Open()
				check(t, err)
				text, err := io.ReadAll(r)
				check(t, err)
				got[f.Name] = string(text)
			}
			return got
		},
	}
	for format, read := range read {
		resp := h.send(t.Context(), "GET", at+"/archive?format="+format, nil)
		want := "attachment; filename=files." + format
		if format == "" {
			want += "tar"
		}
		if got := resp.Header.Get("Content-Disposition"); got != want {
			t.Errorf("%q: the attachment is %q, want %q", format, got, want)
		}
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		if diff := cmp.Diff(all, read(body)); diff != "" || resp.StatusCode != 200 {
			t.Errorf("%q: %s (-want +got):\n%s", format, resp.Status, diff)
		}
	}
	resp := h.send(t.Context(), "GET", at+"/archive?path=out", nil)
	if got := untar(t, resp.Body); !cmp.Equal(got, map[string]string{"out/b.csv": "1,2"}) ||
		resp.Header.Get("Content-Disposition") != "attachment; filename=out.tar" {
		t.Errorf("a part: got %v, %v", got, resp.Header)
	}
	h.call(404, "GET", at+"/archive?path=none", nil)
	for _, query := range []string{"path=../etc", "path=/", "path=/etc/", "path=/etc/../etc", "path=//etc",
		"format=rar", "depth=1"} {
		h.call(400, "GET", at+"/archive?"+query, nil)
	}
}

// TestArchiveElsewhere: an absolute path is that of any directory in the container. Links in it are
// left out, so they lead nowhere.
func TestArchiveElsewhere(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil) // its containers have the file system of this machine
	at := "/v1/containers/" + h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	check(t, os.WriteFile(secret, []byte("secret"), 0o600))
	tree := filepath.Join(dir, "tree")
	check(t, os.MkdirAll(filepath.Join(tree, "below"), 0o700))
	check(t, os.WriteFile(filepath.Join(tree, "below", "a.txt"), []byte("hello"), 0o600))
	check(t, os.Symlink(secret, filepath.Join(tree, "file")))
	check(t, os.Symlink(dir, filepath.Join(tree, "directory")))
	check(t, os.Symlink(tree, filepath.Join(dir, "link")))
	resp := h.send(t.Context(), "GET", at+"/archive?path="+tree, nil)
	if got := untar(t, resp.Body); !cmp.Equal(got, map[string]string{"tree/below/a.txt": "hello"}) ||
		resp.Header.Get("Content-Disposition") != "attachment; filename=tree.tar" {
		t.Errorf("got %v, %v", got, resp.Header)
	}
	resp = h.send(t.Context(), "GET", at+"/archive?path="+secret, nil)
	if got := untar(t, resp.Body); !cmp.Equal(got, map[string]string{"secret": "secret"}) {
		t.Errorf("a file: got %v", got)
	}
	h.call(404, "GET", at+"/archive?path="+filepath.Join(dir, "link"), nil)
	h.call(404, "GET", at+"/archive?path="+filepath.Join(dir, "none"), nil)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	at := "/v1/containers/" + id
	put := func(text string) object {
		t.Helper()
		form, kind := upload("a.txt", strings.NewReader(text))
		return h.call(200, "POST", at+"/files", form, kind)
	}
	first := put("1")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	events := h.stream(ctx, "GET", at+"/watch", "")
	expect := func(want string, bytes float64) {
		t.Helper()
		var got struct {
			Type string
			File object
		}
		frame, err := events.Next()
		check(t, err)
		check(t, json.Unmarshal(frame.Data, &got))
		if got.Type != want || got.Type != frame.Type || got.File.id() != first.id() || got.File.at("bytes") != bytes {
			t.Errorf("got %s %s, want %s of %v bytes", frame.Type, frame.Data, want, bytes)
		}
	}
	expect("container.file.created", 1)
	put("22")
	expect("container.file.updated", 2)
	h.call(200, "DELETE", at+"/files/"+first.id(), nil)
	expect("container.file.deleted", 2)
	h.call(200, "DELETE", "/v1/containers/"+id, nil)
	if frame, err := events.Next(); err != nil || frame.Type != "error" || !strings.Contains(string(frame.Data), id) {
		t.Errorf("got %s %s, %v, want the container's end", frame.Type, frame.Data, err)
	}
	h.call(404, "GET", at+"/watch", nil)
}
