package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/openai/openai-go/v3"

	"github.com/berth-run/berth/internal/longtest"
)

// peak returns the most memory that the server has had resident, in bytes.
func (s *server) peak() int64 {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return kib << 10
}

// A named reader has the name that the client sends.
type named struct {
	io.Reader
	name string
}

func (n named) Filename() string { return n.name }

// TestLargeFiles: a file goes up, into a container, and out again without being
// held in the server's memory. In the long run it has 1 GB, or what an uploaded file may
// have.
func TestLargeFiles(t *testing.T) {
	size, most := int64(96<<20), int64(48<<20)
	if os.Getenv("BERTH_TEST_REMOTE") != "" {
		size, most = 256<<20, 144<<20 // an upload to a bucket holds five parts of 16 MiB
	}
	if longtest.Enabled() {
		size = 1 << 30 // the client holds it in memory, several times
	}
	s := newServer(t)
	c, ctx := s.client(), t.Context()
	small := min(size, 512<<20) // what an uploaded file may have
	content := func(size int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), size) }
	sumContent := func(size int64) string {
		sum := sha256.New()
		if _, err := io.Copy(sum, content(size)); err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(sum.Sum(nil))
	}
	container, err := c.Containers.New(ctx, openai.ContainerNewParams{Name: "large"})
	if err != nil {
		t.Fatal(err)
	}
	before := s.peak()

	uploaded, err := c.Files.New(ctx, openai.FileNewParams{File: named{content(small), "large.bin"},
		Purpose: openai.FilePurposeUserData})
	if err != nil {
		t.Fatal(err)
	}
	inside, err := c.Containers.Files.New(ctx, container.ID,
		openai.ContainerFileNewParams{FileID: openai.String(uploaded.ID)})
	if err != nil {
		t.Fatal(err)
	}
	if inside.Bytes != small {
		t.Fatalf("got %d bytes in the container, want %d", inside.Bytes, small)
	}
	direct, err := c.Containers.Files.New(ctx, container.ID,
		openai.ContainerFileNewParams{File: named{content(size), "direct.bin"}})
	if e, ok := errors.AsType[*openai.Error](err); ok {
		t.Fatal(e.RawJSON())
	} else if err != nil {
		t.Fatal(err)
	}
	if direct.Bytes != size {
		t.Fatalf("got %d bytes in the container, want %d", direct.Bytes, size)
	}
	for id, want := range map[string]string{inside.ID: sumContent(small), direct.ID: sumContent(size)} {
		resp, err := c.Containers.Files.Content.Get(ctx, container.ID, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := sumOf(t, resp); got != want {
			t.Errorf("file %s came back as another", id)
		}
	}
	resp, err := http.Get(s.url + "/v1/containers/" + container.ID + "/archive")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n < small+size || err != nil {
		t.Errorf("the archive has %d bytes, %v, want both files", n, err)
	}
	grown := s.peak() - before
	t.Logf("the server's memory grew by %d MiB", grown>>20)
	if grown > most {
		t.Errorf("the server's memory grew by %d MiB over files of %d", grown>>20, size>>20)
	}
}

func sumOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, resp.Body); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
