package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/longtest"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// TestRegistries installs packages from inside a container, with the registries of
// this machine and the programs as they are. The container may reach these and
// nothing else.
func TestRegistries(t *testing.T) {
	npm, debian := npmRegistry(t), debianMirrors(t)
	tarball, err := exec.Command("npm", "view", "--registry", npm, "npm@10", "dist.tarball", "--json").Output()
	if err != nil {
		t.Skipf("skipped: the npm registry of this machine cannot be reached: %v", err)
	}
	var tarballs []string // one for each version that fits
	if err := json.Unmarshal(tarball, &tarballs); err != nil {
		t.Fatal(err)
	}
	tar := tarballs[len(tarballs)-1]
	reachable(t, debian[0])
	hosts := hostsOf(t, append([]string{npm, tar}, debian...)...)
	// Where a mirror is inside, its operator says so.
	s := newServerWith(t, "containers:\n  network:\n    private: ["+strings.Join(hosts, ", ")+"]\n")
	c, err := s.client().Containers.New(t.Context(), openai.ContainerNewParams{Name: "packages",
		MemoryLimit:   openai.ContainerNewParamsMemoryLimit4g,
		NetworkPolicy: openai.ContainerNewParamsNetworkPolicyUnion{OfAllowlist: &responses.ContainerNetworkPolicyAllowlistParam{AllowedDomains: hosts}}})
	if err != nil {
		t.Fatal(err)
	}
	type step struct{ what, script, want string }
	steps := []step{
		{"apt-get", "sudo apt-get update -qq && sudo apt-get install -y -qq hello >/dev/null && hello",
			"Hello, world!"},
		{"urllib", `python3 -c "import sys, urllib.request as u; print(len(u.urlopen(sys.argv[1]).read()) > 1000)" ` +
			tar, "True"},
		{"requests", `python3 -c "import sys, requests; print(requests.get(sys.argv[1]).status_code)" ` + tar, "200"},
		{"curl", "curl -sSf " + tar + " | tar xz -C /tmp && echo there", "there"},
		{"npm", "cd /tmp && node package/bin/npm-cli.js install --silent --prefix app --registry " + npm +
			` is-number && cd app && node -p 'require("is-number")(7)'`, "true"},
		{"fetch of Node", `node -e "fetch(process.argv[1]).then(r => console.log(r.status))" ` + tar, "200"},
		{"another host", "curl -sS -m 20 https://example.com/ || echo refused", "refused"},
	}
	if longtest.Enabled() { // 150 MB
		steps = append(steps,
			step{"Java",
				"sudo mkdir -p /usr/share/man/man1 && sudo apt-get install -y -qq openjdk-17-jdk-headless >/dev/null 2>&1; cat >/tmp/Get.java <<'EOF'\n" + javaGet + "EOF\njava /tmp/Get.java " + tar,
				"200"})
	}
	for _, step := range steps {
		t.Run(step.what, func(t *testing.T) {
			began := time.Now()
			out, errs, err := s.berth("exec", c.ID, "--", "bash", "-c", step.script)
			if err != nil || strings.TrimSpace(out) != step.want {
				t.Errorf("got %q, %v, %s, want %q", out, err, errs, step.want)
			}
			t.Logf("%s took %v", step.what, time.Since(began).Round(10*time.Millisecond))
		})
	}
}

const javaGet = `import java.net.URI;
import java.net.http.*;
public class Get {
	public static void main(String[] args) throws Exception {
		var request = HttpRequest.newBuilder(URI.create(args[0])).build();
		System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding()).statusCode());
	}
}
`

// npmRegistry returns the npm registry of this machine.
func npmRegistry(t *testing.T) string {
	out, err := exec.Command("npm", "config", "get", "registry").Output()
	if err != nil {
		t.Skipf("skipped: there is no npm to ask for its registry: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// debianMirrors returns the addresses in this machine's sources of Debian packages,
// which are those of the base template.
func debianMirrors(t *testing.T) []string {
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	var found []string
	for _, path := range append(files, "/etc/apt/sources.list") {
		text, _ := os.ReadFile(path)
		found = append(found, regexp.MustCompile(`(?m)^(?:deb|URIs:)\s.*?(https?://\S+/debian\S*)`).FindAllString(
			string(text), -1)...)
	}
	for i, line := range found {
		found[i] = line[strings.Index(line, "http"):]
	}
	if len(found) == 0 {
		t.Skip("skipped: this machine has no sources of Debian packages")
	}
	return found
}

func reachable(t *testing.T, address string) {
	resp, err := (&http.Client{Timeout: 20 * time.Second}).Get(address)
	if err != nil {
		t.Skipf("skipped: the Debian mirror of this machine cannot be reached: %v", err)
	}
	resp.Body.Close()
}

func hostsOf(t *testing.T, addresses ...string) []string {
	var hosts []string
	for _, a := range addresses {
		u, err := url.Parse(a)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, u.Host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
