package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
)

// filesBelow returns the files, by path, below directories that may not be there.
func filesBelow(t *testing.T, dirs ...string) (found []string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				found = append(found, path)
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return found
}

// layerOf returns a layer with a file of random bytes.
func layerOf(t *testing.T, path string, size int) v1.Layer {
	t.Helper()
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(content)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	put(t, w, path, string(content))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A stalling registry stops in the middle of a blob, and counts who gets which.
type stalling struct {
	http.Handler
	mu      sync.Mutex
	blob    string        // a digest; "" once it has stopped
	stalled chan struct{} // closed when it has stopped
	got     map[string]int
}

func (s *stalling) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, blob, isBlob := strings.Cut(r.URL.Path, "/blobs/")
	s.mu.Lock()
	stall := r.Method == http.MethodGet && isBlob && blob == s.blob
	if stall {
		s.blob = ""
	}
	if r.Method == http.MethodGet && isBlob {
		s.got[blob]++
	}
	s.mu.Unlock()
	if !stall {
		s.Handler.ServeHTTP(w, r)
		return
	}
	whole := httptest.NewRecorder()
	s.Handler.ServeHTTP(whole, r)
	w.Header().Set("Content-Length", strconv.Itoa(whole.Body.Len()))
	_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
	close(s.stalled)
	<-r.Context().Done()
}

// TestPullKilled kills a pull in the middle of a layer. Nothing of it can be used, and
// the next one fetches what was not there whole.
func TestPullKilled(t *testing.T) {
	layer := layerOf(t, "opt/random", 3<<20)
	img, err := mutate.AppendLayers(tinyImage(t, ""), layer)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	first, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	last, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s := &stalling{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), blob: last.String(),
		stalled: make(chan struct{}), got: map[string]int{}}
	srv := httptest.NewServer(s)
	defer srv.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/tiny:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	state, temp := t.TempDir(), t.TempDir()
	berth := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary(t), append(args, "--state", state)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
		return cmd
	}
	pull := func() *exec.Cmd { return berth("image", "pull", ref.Name(), "--insecure") }

	killed := pull()
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	receive(t, s.stalled, "the pull reads the layer")
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	// which sweeps
	if out, err := berth("image", "ls").CombinedOutput(); err != nil || strings.Contains(string(out), "tiny") {
		t.Errorf("templates: got %s, %v, want none", out, err)
	}
	left, err := filepath.Glob(filepath.Join(state, "images", "building-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want nothing of the pull", left, err)
	}
	blobs := strings.Join(filesBelow(t, filepath.Join(state, "images", "blobs"), filepath.Join(state, "images",
		"templates"), temp), "\n")
	if strings.Contains(blobs, last.Hex) || strings.Contains(blobs, "rootfs") || strings.Contains(blobs, temp) {
		t.Errorf("got %s, want no layer that is not whole, and no template", blobs)
	}
	if out, err := pull().CombinedOutput(); err != nil {
		t.Fatalf("the next pull: %v: %s", err, out)
	}
	if out, err := berth("image", "ls").CombinedOutput(); err != nil || !strings.Contains(string(out), "tiny-1") {
		t.Errorf("templates: got %s, %v, want it", out, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got[first.String()] > 1 && strings.Contains(blobs, first.Hex) || s.got[last.String()] != 2 {
		t.Errorf("got %v, want the layer twice that was cut, and none that was whole", s.got)
	}
}

// TestBuildKilled kills a build of packages. Nothing of it runs on, or can be used.
func TestBuildKilled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root builds templates of packages")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Skipf("skipped: %v", err)
	}
	state := t.TempDir()
	images := filepath.Join(state, "images")
	build := exec.Command(binary(t), "image", "build", "--state", state)
	if err := build.Start(); err != nil {
		t.Fatal(err)
	}
	built := func(pattern string) bool {
		found, err := filepath.Glob(filepath.Join(images, pattern))
		return err == nil && len(found) > 0
	}
	for end := time.Now().Add(time.Minute); !built("building-*/template/rootfs/*"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the build does not begin")
		}
	}
	if err := build.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = build.Wait()
	// What it has started holds a lock for as long as it lives.
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := exec.Command(binary(t), "image", "ls", "--state", state).CombinedOutput()
		if err != nil || strings.Contains(string(out), "base") {
			t.Fatalf("templates: got %s, %v, want none", out, err)
		}
		if !built("building-*") {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the remains of a killed build are not removed")
		}
	}
	if left := filesBelow(t, filepath.Join(images, "templates"), filepath.Join(images, "names")); len(left) > 0 {
		t.Errorf("got %v, want nothing", left)
	}
}

// TestRestoreKilled kills the server while containers start from a snapshot. Each is whole
// afterwards, and the snapshot is as it was.
func TestRestoreKilled(t *testing.T) {
	s := newServer(t)
	one, _ := s.answer(shellTask(fence("head -c 20000000 /dev/urandom >f; sha256sum f >sum")))
	var kept berth.Snapshot
	if err := s.client().Post(t.Context(), "containers/"+containerOf(one)+"/snapshots", nil, &kept); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, after := range []time.Duration{0, 150 * time.Millisecond, 300 * time.Millisecond} {
		c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "restored"},
			option.WithJSONSet("berth.snapshot_id", kept.ID))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
		time.Sleep(after) // anywhere in its start
		s.kill()
		s.start()
	}
	for _, id := range ids {
		var c berth.Container
		if err := s.client().Get(t.Context(), "containers/"+id, nil, &c); err != nil {
			t.Fatal(err)
		}
		if c.Status != berth.ContainerRunning {
			t.Errorf("%s is %s %s", id, c.Status, c.Berth.Reason)
		}
		if _, out := s.answer(in(id, shellTask(fence("sha256sum -c sum")))); len(out) != 1 || out[0] != "f: OK\n" {
			t.Errorf("%s: got %q", id, out)
		}
	}
	s.whole(containerOf(one), []berth.Snapshot{kept})
}

// TestVolumesKilled kills the server while volumes are made and removed. Volumes
// whose creation was answered are there. Nothing is left of the others.
func TestVolumesKilled(t *testing.T) {
	s := newServer(t)
	type page struct {
		Data    []berth.Volume
		HasMore bool `json:"has_more"`
	}
	known := func() map[berth.VolumeID]bool {
		var all page
		if err := s.client().Get(t.Context(), "volumes?limit=100", nil, &all); err != nil || all.HasMore {
			t.Fatalf("got %v, more %v", err, all.HasMore)
		}
		ids := map[berth.VolumeID]bool{}
		for _, v := range all.Data {
			ids[v.ID] = true
		}
		return ids
	}
	made, removed := map[berth.VolumeID]bool{}, map[berth.VolumeID]bool{}
	for round := range 3 {
		c := s.client()
		stop := make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				var v berth.Volume
				if c.Post(t.Context(), "volumes", map[string]string{"name": fmt.Sprintf("v%d-%d", round, n)},
					&v) != nil {
					continue
				}
				made[v.ID] = true
				if n%2 == 0 {
					continue
				}
				delete(made, v.ID) // it may be gone or not, until the deletion is answered
				if c.Delete(t.Context(), "volumes/"+string(v.ID), nil, nil) == nil {
					removed[v.ID] = true
				}
			}
		})
		time.Sleep(time.Duration(rand.Int64N(int64(500*time.Millisecond))) + 300*time.Millisecond) // anywhere in that
		s.kill()
		close(stop)
		work.Wait()
		s.start()
	}
	there := known()
	t.Logf("%d volumes were made and kept, %d removed, %d are there", len(made), len(removed), len(there))
	for id := range made {
		if !there[id] {
			t.Errorf("%s was acknowledged, and is gone", id)
		}
	}
	for id := range there {
		if removed[id] {
			t.Errorf("%s was removed, and is there", id)
		}
	}
	for _, path := range filesBelow(t, filepath.Join(s.state, "volumes")) {
		if id := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)); !there[berth.VolumeID(id)] {
			t.Errorf("left behind: %s", path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for id := range there {
		var v berth.Volume
		if err := s.client().Get(t.Context(), "volumes/"+string(id), nil, &v); err != nil {
			t.Fatal(err)
		}
		c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "user"},
			option.WithJSONSet("berth.volumes.0.name", v.Name))
		if err != nil {
			t.Fatal(err)
		}
		if out, errs, err := s.berth("exec", c.ID, "--", "sh", "-c",
			"cd /mnt/volumes/"+v.Name+" && echo mine >f && cat f"); err != nil || out != "mine\n" {
			t.Errorf("%s: got %q, %v %s", id, out, err, errs)
		}
		if err := s.client().Containers.Delete(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		s.waitUntil("a volume is removed", func() bool {
			return s.client().Delete(t.Context(), "volumes/"+string(id), nil, nil) == nil
		})
	}
	for line := range strings.Lines(string(mounts)) {
		for id := range removed {
			if strings.Contains(line, string(id)) {
				t.Errorf("a mount is left: %s", line)
			}
		}
	}
	if left := filesBelow(t, filepath.Join(s.state, "volumes")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestImportKilled kills the server while it reads a bundle, and when it has all of it.
// Either all that the bundle brings is there afterwards, or nothing.
func TestImportKilled(t *testing.T) {
	here := newServer(t)
	c := here.client()
	f, err := c.Files.New(t.Context(), openai.FileNewParams{Purpose: openai.FilePurposeUserData,
		File: openai.File(strings.NewReader("from far"), "far", "text/plain")})
	if err != nil {
		t.Fatal(err)
	}
	one, _ := here.answer(shellTask(fence("head -c 3000000 /dev/urandom >f; sha256sum f >sum")),
		option.WithJSONSet("metadata.names", f.ID))
	path := filepath.Join(t.TempDir(), "chain.tar")
	if _, said, err := here.berth("session", "export", one.ID, "-o", path); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	bundle, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	temp := t.TempDir()
	there := newServer(t, "TMPDIR="+temp)
	count := func(what string) int {
		var page struct{ Data []json.RawMessage }
		c := there.client()
		if err := c.Get(t.Context(), what, nil, &page); err != nil {
			t.Fatal(err)
		}
		return len(page.Data)
	}
	send := func(body io.Reader) (done chan string) {
		done = make(chan string, 1)
		url := there.url + "/v1/bundles"
		go func() {
			resp, err := http.Post(url, "application/x-tar", body)
			if err != nil {
				done <- ""
				return
			}
			defer resp.Body.Close()
			var made struct {
				ResponseID string `json:"response_id"`
			}
			if json.NewDecoder(resp.Body).Decode(&made) != nil {
				made.ResponseID = ""
			}
			done <- made.ResponseID
		}()
		return done
	}

	in, out := io.Pipe()
	done := send(in)
	if _, err := out.Write(bundle[:len(bundle)-1_000_000]); err != nil {
		t.Fatal(err)
	}
	there.waitUntil("the bundle's file is there", func() bool { return count("files") == 1 })
	there.kill()
	out.Close()
	<-done
	there.start()
	clean := func() {
		t.Helper()
		for _, what := range []string{"files", "containers", "snapshots"} {
			if n := count(what); n != 0 {
				t.Errorf("%s: got %d, want none", what, n)
			}
		}
		if left := filesBelow(t, temp, filepath.Join(there.state, "spool"), filepath.Join(there.state, "files"),
			filepath.Join(there.state, "snapshots")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	clean()

	id := ""
	for range 4 {
		done := send(bytes.NewReader(bundle))
		time.Sleep(time.Duration(rand.Int64N(int64(120 * time.Millisecond)))) // anywhere in the import
		there.kill()
		id = <-done
		there.start()
		if id != "" || count("files") > 0 {
			break
		}
		clean()
	}
	if count("files") == 0 {
		if id = <-send(bytes.NewReader(bundle)); id == "" {
			t.Fatal("the bundle cannot be imported")
		}
	}
	for what, want := range map[string]int{"files": 1, "containers": 1, "snapshots": 1} {
		if n := count(what); n != want {
			t.Errorf("%s: got %d, want %d", what, n, want)
		}
	}
	if id == "" { // it was whole, and the server died before it said so
		return
	}
	on, got := there.answer(after(one, shellTask(fence("sha256sum -c sum"))), option.WithJSONSet("previous_response_id",
		id))
	if len(got) != 1 || got[0] != "f: OK\n" {
		t.Errorf("%s: got %q", on.ID, got)
	}
}
