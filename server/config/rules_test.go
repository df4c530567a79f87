package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// numericKeys returns the keys of a type with a number, a duration, a size or a price: by rule, with
// a file that sets each to -1.
func numericKeys(t reflect.Type, at keyPath, wrap func(string) string, into map[string]string) {
	value := "-1"
	switch k := t.Kind(); {
	case t == durationType:
		value = "-1s"
	case k == reflect.Pointer:
		numericKeys(t.Elem(), at, wrap, into)
		return
	case k == reflect.Struct:
		for name, of := range keysOf(t) {
			numericKeys(of, at.key(name), func(v string) string { return wrap("{" + name + ": " + v + "}") }, into)
		}
		return
	case k == reflect.Map:
		numericKeys(t.Elem(), at.element(".default"), func(v string) string {
			return wrap("{default: " + v + "}")
		}, into)
		return
	case k == reflect.Slice:
		numericKeys(t.Elem(), at.element("[0]"), func(v string) string { return wrap("[" + v + "]") }, into)
		return
	case k != reflect.Int && k != reflect.Int64 && k != reflect.Float64:
		return
	}
	into[at.name] = wrap(value)
}

// Each numeric key refuses -1, unless -1 is documented, with an error that names the key.
func TestNumbersBelowZero(t *testing.T) {
	keys := map[string]string{}
	numericKeys(reflect.TypeFor[Config](), keyPath{}, func(v string) string { return v }, keys)
	if len(keys) < 60 {
		t.Fatalf("found %d keys", len(keys))
	}
	documented := []string{"budget.max_repeated_failures", "budget.max_repeated_calls"}
	for name, text := range keys {
		_, err := readConfig(t, text)
		switch {
		case slices.Contains(documented, name):
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil || !strings.Contains(err.Error(), "berth.yaml:1: "+name+`: "-1`):
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// Each rule belongs to a key.
func TestRulesHaveKeys(t *testing.T) {
	known := map[string]bool{}
	var walk func(reflect.Type, keyPath)
	walk = func(of reflect.Type, at keyPath) {
		switch of.Kind() {
		case reflect.Pointer:
			walk(of.Elem(), at)
		case reflect.Struct:
			for name, f := range keysOf(of) {
				walk(f, at.key(name))
			}
		case reflect.Map, reflect.Slice:
			walk(of.Elem(), at.element(""))
		}
		known[at.rule] = true
	}
	walk(reflect.TypeFor[Config](), keyPath{})
	for rule := range keyRules {
		if !known[rule] {
			t.Errorf("no key for rule %s", rule)
		}
	}
}

// Load refuses invalid values with an error that names the file, the key and the allowed
// values.
func TestRefusedValues(t *testing.T) {
	for text, want := range map[string]string{
		"driver: docke":                                  `driver: "docke" must be docker, gvisor, kubernetes, microvm or unsafe-local`,
		"containers: {cpu: 0.0001}":                      `containers.cpu: "0.0001" must be from 0.1 to 4096`,
		"containers: {cpu: many}":                        `containers.cpu: "many" must be a number`,
		"containers: {cpu: .nan}":                        `containers.cpu: ".nan" must be from`,
		"containers: {pids: 1}":                          `containers.pids: "1" must be from 16 to`,
		"containers: {pids: 1.5}":                        `containers.pids: "1.5" must be a whole number`,
		"containers: {disk: 0}":                          `containers.disk: "0" must be 1m or more`,
		"containers: {idle: 20}":                         `containers.idle: 20 needs a unit, such as 20m`,
		"containers: {idle: 30s}":                        `containers.idle: "30s" must be 1m or more`,
		"containers: {idle: 90s}":                        `containers.idle: "1m30s" must be whole minutes`,
		"containers: {max_idle: 10m}":                    `containers.idle (20m) must not exceed containers.max_idle (10m)`,
		"containers: {idle: 169h}":                       `containers.idle (169h) must not exceed containers.max_idle (168h)`,
		"containers: {snapshot_life: -1h}":               `containers.snapshot_life: "-1h" must be 1m or more`,
		"containers: {network: {trust_host: maybe}}":     `containers.network.trust_host: "maybe" must be true or false`,
		"containers: 3":                                  `containers: "3" must be a mapping with keys below it`,
		"containers: {pools: base}":                      `containers.pools: "base" must be a list`,
		"containers: {network: {allowed: ['a b']}}":      `containers.network.allowed[0]: `,
		"template: [a]":                                  `template must be a single value`,
		"shell: {output: -1}":                            `shell.output: "-1" must be from 1 to 1048576`,
		"shell: {output: 0}":                             `shell.output: "0" must be from 1`,
		"shell: {timeout: 2h}":                           `shell.timeout (2h) must not exceed shell.max_timeout (1h)`,
		"shell: {timeout: 20m, max_timeout: 10m30s}":     `shell.timeout (20m) must not exceed shell.max_timeout (10m30s)`,
		"disk: {low: 1g, critical: 2g}":                  `disk.critical (2g) must not exceed disk.low (1g)`,
		"retry: {attempts: 0}":                           `retry.attempts: "0" must be 1 or more`,
		"store: {synchronous: off}":                      `store.synchronous: "off" must be normal or full`,
		"budget: {max_cost: abc}":                        `budget.max_cost: `,
		"budget: {max_time: 10ms}":                       `budget.max_time: "10ms" must be 0s, or 1s or more`,
		"driver: kubernetes":                             `kubernetes.registry: the driver kubernetes needs a repository`,
		"kubernetes: {cpu_request: 2}":                   `kubernetes.cpu_request: "2" must be above 0, and 1 or less`,
		"kubernetes: {tolerations: [{operator: In}]}":    `kubernetes.tolerations[0].operator: "In" must be Equal or Exists`,
		"microvm: {accel: hvf}":                          `microvm.accel: "hvf" must be kvm or tcg`,
		"upstreams: {a: {base_url: 'localhost:8000'}}":   `upstreams.a.base_url must be an http or https address`,
		"models: [{match: a, base_url: 'api.test/v1'}]":  `models[0].base_url must be an http or https address`,
		"models: [{match: a, hedge: 1s}]":                `unknown key models[0].hedge; known here: `,
		"foo: 1":                                         `berth.yaml:1: unknown key foo; known here: audit, batches, blobs, budget,`,
		"- a":                                            `the configuration must be a mapping with keys below it`,
		"driver: gvisor\ndriver: docker":                 `berth.yaml:2: driver appears twice, first on line 1`,
		"driver: [":                                      `berth.yaml:1: invalid YAML: a value is missing, or a bracket`,
		"x: &x [*x]":                                     `unknown key x`,
		"models: &x [*x]":                                `must be a mapping with keys below it`,
		"limits: {proj_a: {containers: 1, storage: no}}": `limits.proj_a.storage: "no" is not a number, a size such as 10g, or none`,
	} {
		_, err := readConfig(t, text)
		if err == nil || !strings.Contains(err.Error(), "berth.yaml:") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		} else if s := fmt.Sprint(err); strings.Contains(s, "server.") && !strings.Contains(text, "server") ||
			strings.Contains(s, "!!") {
			t.Errorf("%q: got %v, which mentions Go types", text, err)
		}
	}
	if c, err := readConfig(t, "shell: {max_timeout: 5m}"); err != nil || c.Shell.Timeout != c.Shell.MaxTimeout {
		t.Errorf("a lower max_timeout: %+v, %v", c, err)
	}
	if c, err := readConfig(t, "x-common: 1"); err == nil {
		t.Errorf("got %+v", c)
	}
	if c, err := readConfig(t,
		"upstreams: {a: &a {provider: openai, limits: {concurrency: 3}}, b: {<<: *a, base_url: 'http://x'}}\ncontainers: ~\n"); err != nil ||
		c.Upstreams["b"].Limits.Concurrency != 3 {
		t.Errorf("merged keys: %+v, %v", c, err)
	}
}

// Faults of an address or a state directory are named.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"server: {listen: '127.0.0.1:99999'}\n":  `server.listen: "127.0.0.1:99999" has a port out of range; write one from 0 to 65535`,
		"metrics: {listen: '127.0.0.1:nope!'}\n": `metrics.listen: "127.0.0.1:nope!" has an unknown port`,
		"server: {listen: '127.0.0.1:'}\n":       `server.listen: "127.0.0.1:" has no port`,
	} {
		if _, err := readConfig(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	for _, path := range []string{"/etc/passwd", "/etc/passwd/state"} {
		if _, err := readConfig(t, "state: "+path+"\n"); err == nil || !strings.Contains(err.Error(),
			"state: /etc/passwd is not a directory") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}
