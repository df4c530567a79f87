package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
)

// newContainer makes a container with files of testdata in its working directory.
func (s *server) newContainer(files ...string) (id string) {
	s.t.Helper()
	c := s.client()
	container, err := c.Containers.New(s.t.Context(), openai.ContainerNewParams{Name: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range files {
		f, err := os.Open(filepath.Join("testdata", name))
		if err != nil {
			s.t.Fatal(err)
		}
		defer f.Close()
		if _, err := c.Containers.Files.New(s.t.Context(), container.ID,
			openai.ContainerFileNewParams{File: openai.File(f, name, "text/plain")}); err != nil {
			s.t.Fatal(err)
		}
	}
	return container.ID
}

// TestPorts reaches a Python server in a gVisor sandbox in every way there is.
func TestPorts(t *testing.T) {
	s := newServer(t)
	id := s.newContainer("served.py", "page.html", "module.js")
	if out, errs, err := s.berth("exec", id, "--", "sh", "-c",
		"echo hello > data.txt; nohup python3 served.py >served.log 2>&1 &"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	base := s.url + "/v1/containers/" + id + "/ports/8000/"
	s.waitUntil("the sandbox serves", func() bool { return fetch(t, base+"data.txt") == "hello\n" })

	t.Run("http", func(t *testing.T) {
		resp, err := http.Get(base + "large")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); n != 64<<20 || err != nil {
			t.Errorf("got %d bytes, %v, want %d", n, err, 64<<20)
		}
		posted, err := http.Post(base, "", strings.NewReader(strings.Repeat("a", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		defer posted.Body.Close()
		if sum, _ := io.ReadAll(posted.Body); string(
			sum) != "9bc1b2a288b26af7257a36277ae3816a7d4f16e89c1e7e77d0a5c48bad62b360" {
			t.Errorf("got the digest %s of what was sent", sum)
		}
	})
	t.Run("websocket", func(t *testing.T) {
		conn, _, err := websocket.Dial(t.Context(), s.url+"/v1/containers/"+id+"/ports/8001/", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		for _, want := range []string{"ahoy", "again"} {
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(want)); err != nil {
				t.Fatal(err)
			}
			if _, got, err := conn.Read(t.Context()); string(got) != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
	})
	t.Run("berth port", func(t *testing.T) {
		cmd := exec.Command(binary(t), "port", id, "0:8000")
		cmd.Env = append(os.Environ(), "BERTH_URL="+s.url)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		local, _, _ := strings.Cut(line, " ")
		if got := fetch(t, "http://"+local+"/data.txt"); got != "hello\n" {
			t.Errorf("got %q through %s, want hello", got, local)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("interrupted: %v", err)
		}
	})
	link, errs, err := s.berth("port", "--link", id, "8000")
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	link = strings.TrimSpace(link)
	if got := fetch(t, link+"data.txt"); got != "hello\n" {
		t.Errorf("got %q through the link, want hello", got)
	}
	t.Run("browser", func(t *testing.T) { testBrowser(t, link+"page.html") })
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var toldPattern = regexp.MustCompile(`<pre id="told">(.*?)</pre>`)

// testBrowser shows the page to Chromium: it reaches its own server, and nothing of
// the API, although both have one origin and this API asks for no key.
func testBrowser(t *testing.T, page string) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: how browsers treat a link is not tested")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(),
		"--virtual-time-budget=10000", "--dump-dom", page)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	dom, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var told map[string]string
	if m := toldPattern.FindSubmatch(dom); m == nil || json.Unmarshal([]byte(html.UnescapeString(string(m[1]))),
		&told) != nil {
		t.Fatalf("the page reported nothing:\n%s", dom)
	}
	want := map[string]string{"origin": "null", "own file": "hello", "own post": "200", "the API": "refused",
		"cookies": "refused", "storage": "refused", "service worker": "refused"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what the page could do (-want +got):\n%s", diff)
	}
}
