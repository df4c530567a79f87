package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/internal/squidtest"
)

// An island is a network namespace whose only neighbour is this machine, which forwards nothing. A server in it
// reaches a proxy here, and everything else that it sends is a leak.
type island struct {
	name, here, there string // addresses
	link              string // this machine's end
	resolver          string // a file that names a resolver outside

	mu    sync.Mutex
	seen  map[string]bool // packets that belong to nothing allowed
	allow map[int]bool    // TCP ports here, and there
}

// newIsland makes an island. It ends with the test.
func newIsland(t *testing.T, ports ...int) *island {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	n := os.Getpid() % 250
	i := &island{name: fmt.Sprintf("berth-island-%d", os.Getpid()), link: fmt.Sprintf("bi%d", os.Getpid()%100000),
		here: fmt.Sprintf("10.231.%d.1", n), there: fmt.Sprintf("10.231.%d.2", n), seen: map[string]bool{},
		allow: map[int]bool{}}
	for _, p := range ports {
		i.allow[p] = true
	}
	i.resolver = filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(i.resolver, []byte("nameserver "+i.here+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for k, line := range []string{"netns add " + i.name, "link add " + i.link + " type veth peer name out netns " + i.name,
		"addr add " + i.here + "/30 dev " + i.link, "link set " + i.link + " up",
		"-n " + i.name + " link set lo up", "-n " + i.name + " addr add " + i.there + "/30 dev out",
		"-n " + i.name + " link set out up", "-n " + i.name + " route add default via " + i.here} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Skipf("no network namespaces: ip %s: %v %s", line, err, out)
		}
		if k == 0 {
			t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", i.name).Run() })
		}
	}
	i.watch(t)
	return i
}

// enter returns a command that runs another on the island. ip netns exec would hide the machine's cgroups.
func (i *island) enter() []string {
	return []string{"nsenter", "--net=/run/netns/" + i.name, "unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/resolv.conf && exec "$@"`, i.resolver}
}

// watch reads all packets that leave the island.
func (i *island) watch(t *testing.T) {
	t.Helper()
	link, err := net.InterfaceByName(i.link)
	if err != nil {
		t.Fatal(err)
	}
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
	if err != nil {
		t.Skipf("no packets can be read here: %v", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "packets")
	done := make(chan struct{})
	t.Cleanup(func() { file.Close(); <-done })
	go func() {
		defer close(done)
		packet := make([]byte, 1<<16)
		for {
			n, err := file.Read(packet)
			if err != nil {
				return
			}
			i.look(packet[:n])
		}
	}()
}

// look notes a packet that leaves the island, unless it belongs to a connection with an allowed port.
func (i *island) look(p []byte) {
	if len(p) < 20 || p[0]>>4 != 4 { // ARP, or IPv6's search for neighbours, which has no route
		return
	}
	head := int(p[0]&15) * 4
	from, to := netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
	if from.String() != i.there || len(p) < head+4 {
		return
	}
	source, port := int(p[head])<<8|int(p[head+1]), int(p[head+2])<<8|int(p[head+3])
	if p[9] == unix.IPPROTO_TCP && to.String() == i.here && (i.allow[port] || i.allow[source]) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen[fmt.Sprintf("protocol %d to %s port %d", p[9], to, port)] = true
}

func (i *island) leaks() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Sorted(maps.Keys(i.seen))
}

// A town is what the Internet has, with a certificate of an authority that only a file names.
type town struct {
	mu   sync.Mutex
	hits map[string]int
	ca   string // path
}

// townAt is an address of this machine at which nothing else listens.
const townAt = "127.77.0.1"

var townNames = []string{"model", "site", "pages", "search", "mcp", "hook", "login", "traces", "registry"}

func townHosts() map[string]string {
	hosts := map[string]string{}
	for _, name := range townNames {
		hosts[name+".example.com"] = townAt
	}
	return hosts
}

func newTown(t *testing.T) *town {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "town"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, DNSNames: []string{"*.example.com"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	w := &town{hits: map[string]int{}, ca: filepath.Join(t.TempDir(), "ca.pem")}
	if err := os.WriteFile(w.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	for _, port := range []string{"80", "443"} {
		l, err := net.Listen("tcp", net.JoinHostPort(townAt, port))
		if err != nil {
			t.Skipf("the port is in use here: %v", err)
		}
		if port == "443" {
			l = tls.NewListener(l, conf)
		}
		srv := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { srv.Close() })
	}
	return w
}

func (w *town) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	host, _, _ := strings.Cut(r.Host, ":")
	w.mu.Lock()
	w.hits[scheme+"://"+host]++
	w.mu.Unlock()
	switch host {
	case "model.example.com":
		out.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(out, `data: {"id":"1","choices":[{"index":0,"delta":{"content":"from afar"},"finish_reason":"stop"}]}`+
			"\n\ndata: [DONE]\n\n")
	case "search.example.com":
		_, _ = io.WriteString(out, `{"results":[]}`)
	default:
		_, _ = io.WriteString(out, "ahoy from "+scheme+"://"+host)
	}
}

func (w *town) reached(place string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hits[place]
}

const proxyConfig = `proxy:
  url: http://%[1]s
  username: berth
  password_env: TEST_PROXY_PASSWORD
  ca_file: %[2]s
upstreams:
  far: {provider: chat, base_url: https://model.example.com/v1, api_key: none}
models: [{match: far, upstreams: [{name: far}]}]
web_search: {backend: http, url: https://search.example.com/search}
traces: {endpoint: https://traces.example.com}
sign_in:
  issuer: https://login.example.com
  client_id: berth
  url: http://127.0.0.1:9
  projects: [{group: "*", project: proj_default}]
`

// TestProxy runs a server in a network that has no way out but squid, which wants a password and resolves all names. It
// uses each of the server's ways to the outside. No packet leaves for anything but the proxy, not even a question for
// a name, and after the proxy's end nothing is reached.
func TestProxy(t *testing.T) {
	_, port, _ := net.SplitHostPort(freeport.Addr(t))
	var squidPort int
	_, _ = fmt.Sscan(port, &squidPort)
	const apiPort = 8080
	i := newIsland(t, squidPort, apiPort)
	town := newTown(t)
	squid := squidtest.Start(t, net.JoinHostPort(i.here, port), townHosts())

	s := prepareServer(t, t.TempDir(), fmt.Sprintf(proxyConfig, squid.Addr, town.ca),
		"TEST_PROXY_PASSWORD="+squidtest.Password)
	s.wrap, s.addr = i.enter(), net.JoinHostPort(i.there, fmt.Sprint(apiPort))
	out, errs, err := s.berth("key", "create", "--state", s.state)
	if err != nil {
		t.Fatal(errs)
	}
	for word := range strings.FieldsSeq(out) {
		if strings.HasPrefix(word, "sk-berth-") {
			s.key = word
		}
	}
	s.start()
	t.Cleanup(s.close)
	c := s.client()
	ask := func(model, input string, tools ...any) *responses.Response {
		t.Helper()
		r, err := c.Responses.New(t.Context(), responses.ResponseNewParams{Model: model,
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(input)}}, option.WithJSONSet("tools", tools))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var made struct{ ID string }
	if err := c.Post(t.Context(), "webhook_endpoints", json.RawMessage(
		`{"name":"h","url":"https://hook.example.com/","event_types":["response.completed"]}`), &made); err != nil {
		t.Fatal(err)
	}

	if r := ask("far", "hello"); r.OutputText() != "from afar" {
		t.Errorf("the model: got %s", r.RawJSON())
	}
	shell := map[string]any{"type": "shell", "environment": map[string]any{"type": "container_auto",
		"network_policy": map[string]any{"type": "allowlist",
			"allowed_domains": []string{"site.example.com", "gone.example.com", "localhost", "intranet"}}}}
	get := "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode())' "
	r := ask("scripted", fence(get+"https://site.example.com/ 2>&1 | tail -1", get+"http://site.example.com/ 2>&1 | tail -1",
		get+"https://gone.example.com/ 2>&1 | tail -1", get+"http://intranet/ 2>&1 | tail -1",
		get+"http://localhost/ 2>&1 | tail -1"), shell)
	for _, want := range []string{"ahoy from https://site.example.com", "ahoy from http://site.example.com"} {
		if !strings.Contains(r.RawJSON(), want) {
			t.Errorf("the container did not get %q: %s", want, r.RawJSON())
		}
	}
	ask("scripted", "```json web_search\n"+`{"type":"search","queries":["tides"]}`+"\n```\n```json web_search\n"+
		`{"type":"open_page","url":"http://pages.example.com/"}`+"\n```\n", map[string]any{"type": "web_search"})
	_, _ = c.Responses.New(t.Context(), responses.ResponseNewParams{Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}},
		option.WithJSONSet("tools", []any{map[string]any{"type": "mcp", "server_label": "lab",
			"server_url": "https://mcp.example.com/mcp", "require_approval": "never"}})) // it is no MCP server
	_, _ = c.Responses.New(t.Context(), responses.ResponseNewParams{Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}},
		option.WithJSONSet("input", []any{map[string]any{"role": "user", "content": []any{map[string]any{
			"type": "input_file", "file_url": "https://pages.example.com/a.txt"}}}}))

	if _, err := c.Responses.New(t.Context(), responses.ResponseNewParams{Model: "scripted", Background: openai.Bool(true),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}}); err != nil { // with a webhook
		t.Fatal(err)
	}

	places := []string{"https://model.example.com", "https://site.example.com", "http://site.example.com",
		"https://search.example.com", "http://pages.example.com", "https://pages.example.com", "https://mcp.example.com",
		"https://login.example.com", "https://traces.example.com", "https://hook.example.com"}
	for _, place := range places {
		s.waitUntil(place+" was reached", func() bool { return town.reached(place) > 0 })
	}
	if strings.Contains(s.log.String(), squidtest.Password) || strings.Contains(squid.Log(), squidtest.Password) {
		t.Error("a log has the proxy's password")
	}
	if strings.Contains(squid.Log(), "intranet") || strings.Contains(squid.Log(), "localhost") {
		t.Errorf("the proxy was asked for a name of a private network:\n%s", squid.Log())
	}
	record, _, err := s.berth("audit", "log", "--state", s.state, "--json")
	if err != nil || !strings.Contains(record, `"proxy":"`+squid.Addr+`"`) {
		t.Errorf("the audit record does not name the proxy: %v %s", err, record)
	}

	squid.Stop()
	before := town.reached("https://site.example.com") + town.reached("https://model.example.com")
	if r := ask("scripted", fence(get+"https://site.example.com/ 2>&1 | tail -1"), shell); strings.Contains(r.RawJSON(), "ahoy") {
		t.Errorf("the container reached a host without the proxy: %s", r.RawJSON())
	}
	_, err = c.Responses.New(t.Context(), responses.ResponseNewParams{Model: "far",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}})
	if err == nil || before != town.reached("https://site.example.com")+town.reached("https://model.example.com") {
		t.Errorf("the model was reached without the proxy: %v", err)
	}
	if leaks := i.leaks(); len(leaks) > 0 {
		t.Errorf("packets left for something other than the proxy: %q", leaks)
	}
}
