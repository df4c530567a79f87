package compose

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// The file of a task of Inspect's usual kind, with what compose files of SWE tasks have beside.
const task = `
name: ctf
version: "3"
x-anchors:
  limits: &limits {mem_limit: 0.5gb, cpus: 1.0, init: true}
services:
  default:
    <<: *limits
    image: aisiuk/inspect-tool-support:latest
    command: tail -f /dev/null
    x-default: true
    x-local: true
    environment: ["TARGET=http://victim:${PORT:-8000}", "PRICE=5$$"]
    depends_on:
      victim: {condition: service_healthy}
      setup: {condition: service_completed_successfully}
  victim:
    image: victim
    entrypoint: [python3, -m]
    command: http.server '8000'
    environment: {A: "1"}
    expose: ["9000"]
    ports: ["8080:8000", "127.0.0.1:2222:22/tcp", {target: 443, published: 8443}]
    volumes: ["data:/srv:ro"]
    user: root
    working_dir: /srv
    healthcheck: {test: "curl -f localhost:8000", interval: 500ms, retries: 20, start_period: 1s}
    x-berth: {allow: [pypi.org]}
    deploy: {resources: {limits: {memory: 3G}}}
  setup: {image: base, command: "true", network_mode: none, restart: "no"}
networks: {default: {}}
volumes: {data: {}}
`

func TestParse(t *testing.T) {
	p, err := Parse([]byte(task), env())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	byName := map[string]*Service{}
	for _, s := range p.Services {
		names, byName[s.Name] = append(names, s.Name), s
	}
	if p.Name != "ctf" || slices.Index(names, "default") != 2 {
		t.Fatalf("got %q, %q", p.Name, names)
	}
	d, v, setup := byName["default"], byName["victim"], byName["setup"]
	if !slices.Equal(d.Command, []string{"tail", "-f", "/dev/null"}) || d.Memory != "1g" || d.Isolated ||
		d.Environment["TARGET"] != "http://victim:8000" || d.Environment["PRICE"] != "5$" || len(d.Needs) != 2 {
		t.Errorf("default: %+v", d)
	}
	if !slices.Equal(v.Command, []string{"python3", "-m", "http.server", "8000"}) || v.Memory != "4g" ||
		!slices.Equal(v.Ports, []int{22, 443, 8000, 9000}) || v.Environment["A"] != "1" || v.User != "root" ||
		v.Dir != "/srv" || len(v.Volumes) != 1 || !v.Volumes[0].ReadOnly || !slices.Equal(v.Allow, []string{"pypi.org"}) {
		t.Errorf("victim: %+v", v)
	}
	if h := v.Health; h == nil || h.Patience() != 11*time.Second || h.Timeout != 30*time.Second ||
		!slices.Equal(h.Test, []string{"/bin/sh", "-c", "curl -f localhost:8000"}) {
		t.Errorf("health: %+v", v.Health)
	}
	if !setup.Isolated {
		t.Error("network_mode none is not isolated")
	}
	want := []string{"services.default.cpus", "services.default.init", "services.setup.restart", "version"}
	if !slices.Equal(p.Ignored, want) {
		t.Errorf("ignored: got %q, want %q", p.Ignored, want)
	}
}

// What the file cannot have here is refused by its name, never left out in silence.
func TestParseRefuses(t *testing.T) {
	one := func(keys string) string { return "services: {a: {image: base, " + keys + "}, b: {image: base}}" }
	for _, c := range []struct{ text, want string }{
		{one("privileged: true"), "services.a.privileged: the key is not supported"},
		{one("cap_add: [ALL]"), "services.a.cap_add: the key"},
		{one("build: ."), "services.a.build: images are not built here"},
		{one("network_mode: host"), "services.a.network_mode: \"host\""},
		{one("networks: [x, y]"), "services.a.networks: a container is in one"},
		{one("volumes: ['./src:/src']"), "services.a.volumes: \"./src:/src\""},
		{one("volumes: ['/etc:/etc']"), "services.a.volumes"},
		{one("volumes: ['data:../x']"), "services.a.volumes"},
		{one("ports: ['8000-8010:80']") + "x", "parse YAML"},
		{one("ports: ['80-90']"), "services.a.ports: \"80-90\""},
		{one("ports: ['53/udp']"), "services.a.ports: \"53/udp\""},
		{one("ports: ['0']"), "services.a.ports"},
		{one("depends_on: [c]"), "there is no service \"c\""},
		{one("depends_on: [a]"), "need each other"},
		{one("depends_on: {b: {condition: service_healthy}}"), "no healthcheck"},
		{one("depends_on: {b: {condition: soon}}"), "b.condition: \"soon\""},
		{one("healthcheck: {test: [x]}"), "services.a.healthcheck: test"},
		{one("healthcheck: {test: x, interval: 0.5}"), "services.a.healthcheck"},
		{one("healthcheck: {test: x, retries: 100000}"), "services.a.healthcheck"},
		{one("mem_limit: 65g"), "more than the 64g"},
		{one("mem_limit: lots"), "not an amount"},
		{one("command: 'echo \"'"), "a quotation does not end"},
		{one("image: $MISSING"), "the variable MISSING is not set"},
		{one("x-berth: {alow: []}"), "services.a.x-berth: alow: the key is not known"},
		{"services: {a: {image: '${B:?give it}'}}", "B is not set: give it"},
		{"services: {A: {image: base}}", "services.A: a name"},
		{"services: {a.b: {image: base}}", "services.a.b: a name"},
		{"services: {}", "expected 1 to 50"},
		{"secrets: {}\nservices: {a: {image: b}}", "secrets: the key is not supported"},
		{"networks: {a: {}, b: {}}\nservices: {a: {image: b}}", "networks: a container is in one"},
		{"- a", "not a mapping"},
		{strings.Repeat("#", maxBytes+1), "larger than"},
	} {
		if _, err := Parse([]byte(c.text), env()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.text[:min(80, len(c.text))], err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(task))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text, env("PORT", "1"))
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, s := range p.Services {
			for _, need := range s.Needs {
				if !seen[need.Service] {
					t.Errorf("%s starts before %s", s.Name, need.Service)
				}
			}
			seen[s.Name] = true
		}
	})
}
