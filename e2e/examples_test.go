package e2e

import (
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/berth-run/berth/internal/freeport"
)

// exampleNames returns the folders below examples.
func exampleNames(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob("../examples/*/README.md")
	if err != nil || len(paths) < 10 {
		t.Fatalf("found %d examples, %v", len(paths), err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	return names
}

// TestClientsExamples runs the commands that the page of each example shows, and compares
// what they print with what the page shows. An example fails if what it demonstrates does not work.
func TestClientsExamples(t *testing.T) {
	skipClient(t)
	for _, name := range exampleNames(t) {
		t.Run(name, func(t *testing.T) {
			r, during := newExample(t, name)
			page := filepath.Join("examples", name, "README.md")
			var shell []snippet
			for _, s := range snippets(page, read(t, filepath.Join("..", page))) {
				if s.language == "sh" && s.skip == "" || s.output {
					shell = append(shell, s)
				}
			}
			if len(shell) != 2 {
				t.Fatalf("%s has no command with its output", page)
			}
			r.shell(shell, during)
		})
	}
}

// newExample returns a reader with a copy of the examples, the packages that they import, and
// the server that the example needs; during is to be called while the example runs.
func newExample(t *testing.T, example string) (r *reader, during func()) {
	r = &reader{t: t, dir: t.TempDir()}
	if err := os.CopyFS(filepath.Join(r.dir, "examples"), os.DirFS("../examples")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"go.mod", "go.sum"} {
		if err := os.WriteFile(filepath.Join(r.dir, path), []byte(read(t, filepath.Join("..", path))),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	skipWithout(t, "node/node_modules/.berth-lock")
	modules, err := filepath.Abs("node/node_modules")
	if err == nil {
		err = os.Symlink(modules, filepath.Join(r.dir, "examples", "node_modules"))
	}
	if err != nil {
		t.Fatal(err)
	}
	paths, err := exec.Command("go", "env", "GOPATH", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	where := strings.Fields(string(paths))
	r.set = []string{"GOPATH=" + where[0], "GOCACHE=" + where[1]}
	r.path = filepath.Dir(pythonClient{env: "sdk"}.python(t))

	switch example {
	case "own-image":
		srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		t.Cleanup(srv.Close)
		ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/tiny:1")
		if err == nil {
			err = remote.Write(ref, tinyImage(t, ""))
		}
		if err != nil {
			t.Fatal(err)
		}
		r.set = append(r.set, "IMAGE="+ref.Name(), "PULL_FLAGS=--insecure")
		r.s = startServer(t, t.TempDir(), "template: own\n")
	case "private-database":
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		addresses, err := net.LookupHost(host)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(freeport.Addr(t))
		private := []string{"'" + host + ":" + port + "'"}
		for _, address := range addresses {
			private = append(private, "'"+net.JoinHostPort(address, port)+"'")
		}
		r.set = append(r.set, "DB="+host+":"+port)
		r.s = newServerWith(t, "containers: {network: {private: ["+strings.Join(private, ", ")+"]}}\n")
	case "background-work":
		r.s = newExampleServer(t, freeport.Addr(t), "")
		r.set = append(r.set, "STEPS=5")
		during = func() {
			r.s.waitUntil("the response runs", func() bool {
				printed, _ := os.ReadFile(filepath.Join(r.dir, "out"))
				return strings.Contains(string(printed), "restart the server now")
			})
			r.s.kill()
			r.s.waitUntil("the example has noticed", func() bool {
				printed, _ := os.ReadFile(filepath.Join(r.dir, "out"))
				return strings.Contains(string(printed), "the server is away")
			})
			r.s.start()
		}
	case "switch-vendor":
		addr := freeport.Addr(t)
		r.s = newExampleServer(t, addr,
			"models: [{match: second, provider: chat, base_url: 'http://"+addr+"/v1', upstream: scripted, api_key: none}]\n")
	default:
		r.s = newServer(t)
	}
	return r, during
}

// newExampleServer starts a server at an address.
func newExampleServer(t *testing.T, addr, config string) *server {
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	s := prepareServer(t, t.TempDir(), config+"containers: {pool: 0}\n")
	s.addr = addr
	s.start()
	t.Cleanup(s.close)
	return s
}
