package e2e

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/berth-run/berth/internal/longtest"
)

// TestE2BRegistry builds templates from an image in a private registry with E2B's client.
func TestE2BRegistry(t *testing.T) {
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "robot" || password != "secret-of-the-registry" {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	ref, err := name.ParseReference(host + "/tiny:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, tinyImage(t, ""), remote.WithAuth(&authn.Basic{Username: "robot",
		Password: "secret-of-the-registry"})); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir() // the pulled images do not stay among those of other tests
	cmd := exec.Command(binary(t), "image", "pull", ref.Name(), "--insecure", "--state", state, "--username", "robot",
		"--password-stdin")
	cmd.Stdin = strings.NewReader("secret-of-the-registry\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := startServer(t, state, "template: tiny-1\ne2b:\n  registries: ['"+host+"']\n")
	nodeClient{name: "e2b", dir: "node", tests: []string{"e2b-registry.test.mjs"}}.run(t, s,
		"BERTH_E2B_IMAGE="+ref.Name())
	if s.logs("secret-of-the-registry") {
		t.Error("the log has the password of the registry")
	}
}

// TestE2BMany creates, uses and kills a thousand sandboxes, one after another.
func TestE2BMany(t *testing.T) {
	longtest.Skip(t)
	s := newServer(t)
	nodeClient{name: "e2b", dir: "node", tests: []string{"e2b-many.test.mjs"}}.run(t, s, "BERTH_E2B_RUNS=1000")
}
