// Package compose reads files like those of Docker Compose: the services of a task, with what they run and wait for.
//
// It knows the keys that a container of Berth can honour. Some others change nothing here and are returned as ignored;
// all the rest are errors, because a task that runs without them would be another task.
package compose

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
)

// A Project is a file.
type Project struct {
	Name     string     // may be empty
	Services []*Service // in the order in which they start
	Ignored  []string   // keys that have no effect here, such as "services.db.restart", sorted
}

// A Service is a container of a project.
type Service struct {
	Name        string
	Image       string
	Template    string   // x-berth.template; beats Image
	Allow       []string // x-berth.allow: hosts that it may reach
	Command     []string // entrypoint and command; empty: nothing is started
	Environment map[string]string
	Dir, User   string
	Memory      string // a tier of berth.MemoryLimits; may be empty
	Isolated    bool   // network_mode none: it is in no group
	Ports       []int  // of the container, from ports and expose, sorted
	Published   []string
	Volumes     []berth.VolumeMount
	Needs       []Need
	Health      *Health // may be nil
}

// A Need is another service that must be ready before a service starts.
type Need struct {
	Service   string
	Condition Condition
}

// A Condition is when a needed service is ready.
type Condition string

// The conditions of compose files.
const (
	Started   Condition = "service_started"
	Healthy   Condition = "service_healthy"
	Completed Condition = "service_completed_successfully"
)

// A Health is how a service is checked.
type Health struct {
	Test                           []string
	Interval, Timeout, StartPeriod time.Duration
	Retries                        int
}

// Patience returns how long a service may take until it is healthy.
func (h *Health) Patience() time.Duration { return h.StartPeriod + time.Duration(h.Retries)*h.Interval }

// maxServices and maxBytes bound a file.
const (
	maxServices = 50
	maxBytes    = 1 << 20
)

// serviceName is that of a neighbour and a part of a container's name.
var serviceName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// Parse parses a file. variable returns the variables that it uses.
func Parse(text []byte, variable func(string) (string, bool)) (*Project, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("the file is larger than %d bytes", maxBytes)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("parse YAML: %w", err)
	}
	if err := substitute(&root, variable); err != nil {
		return nil, err
	}
	var top map[string]yaml.Node
	if err := decode(&root, &top); err != nil {
		return nil, fmt.Errorf("the file is not a mapping: %w", err)
	}
	p, ignored := &Project{}, map[string]bool{}
	var services map[string]yaml.Node
	for _, key := range slices.Sorted(maps.Keys(top)) {
		node := top[key]
		var err error
		switch {
		case key == "name":
			err = decode(&node, &p.Name)
		case key == "services":
			err = decode(&node, &services)
		case key == "volumes": // those of Berth, which exist or not
		case key == "version":
			ignored[key] = true
		case key == "networks":
			err = oneNetwork(node)
		case strings.HasPrefix(key, "x-"):
		default:
			err = errors.New("the key is not supported")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(services) == 0 || len(services) > maxServices {
		return nil, fmt.Errorf("services: expected 1 to %d, but got %d", maxServices, len(services))
	}
	all := map[string]*Service{}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if !serviceName.MatchString(name) {
			return nil, fmt.Errorf("services.%s: a name has up to 63 lower-case letters, digits, hyphens and underscores, "+
				"the first a letter", name)
		}
		s, err := parseService(name, services[name], ignored)
		if err != nil {
			return nil, err
		}
		all[name] = s
	}
	var err error
	p.Services, err = order(all)
	p.Ignored = slices.Sorted(maps.Keys(ignored))
	return p, err
}

// oneNetwork accepts networks if there is no more than one: a container is in one group.
func oneNetwork(node yaml.Node) error {
	var networks map[string]yaml.Node
	if err := decode(&node, &networks); err != nil {
		return err
	}
	if len(networks) > 1 {
		return errors.New("a container is in one private network; expected no more than one")
	}
	return nil
}

// without are keys that change nothing: Berth does it anyway, or its operator decides.
var without = []string{"container_name", "cpus", "init", "labels", "logging", "platform", "pull_policy", "restart",
	"shm_size", "stdin_open", "stop_grace_period", "tty"}

// parseService parses a service.
func parseService(name string, node yaml.Node, ignored map[string]bool) (*Service, error) {
	var keys map[string]yaml.Node
	at := "services." + name
	if err := decode(&node, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	s := &Service{Name: name}
	var entrypoint, command []string
	parse := map[string]func(n yaml.Node) error{
		"image":       func(n yaml.Node) error { return decode(&n, &s.Image) },
		"working_dir": func(n yaml.Node) error { return decode(&n, &s.Dir) },
		"user":        func(n yaml.Node) error { return decode(&n, &s.User) },
		"entrypoint":  func(n yaml.Node) (err error) { entrypoint, err = words(n); return err },
		"command":     func(n yaml.Node) (err error) { command, err = words(n); return err },
		"environment": func(n yaml.Node) (err error) { s.Environment, err = pairs(n); return err },
		"depends_on":  s.parseNeeds,
		"healthcheck": s.parseHealth,
		"ports":       s.parsePorts,
		"expose":      s.parseExposed,
		"volumes":     s.parseVolumes,
		"mem_limit":   s.parseMemory,
		"deploy":      s.parseDeploy,
		"x-berth":     s.parseOwn,
		"networks": func(n yaml.Node) error {
			var one []string
			if n.Kind == yaml.MappingNode {
				return oneNetwork(n)
			}
			if err := decode(&n, &one); err != nil || len(one) > 1 {
				return errors.New("a container is in one private network; expected no more than one")
			}
			return nil
		},
		"network_mode": func(n yaml.Node) error {
			if n.Value != "none" && n.Value != "bridge" {
				return fmt.Errorf("%q is not supported; expected none or bridge", n.Value)
			}
			s.Isolated = n.Value == "none"
			return nil
		},
		"build": func(yaml.Node) error {
			return errors.New("images are not built here: build a template with 'berth image build', and name it as image")
		},
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		f, node := parse[key], keys[key]
		if node.Kind == yaml.AliasNode {
			node = *node.Alias
		}
		switch {
		case slices.Contains(without, key):
			ignored[at+"."+key] = true
		case f == nil && strings.HasPrefix(key, "x-"):
		case f == nil:
			return nil, fmt.Errorf("%s.%s: the key is not supported", at, key)
		default:
			if err := f(node); err != nil {
				return nil, fmt.Errorf("%s.%s: %w", at, key, err)
			}
		}
	}
	s.Command = append(entrypoint, command...)
	slices.Sort(s.Ports)
	s.Ports = slices.Compact(s.Ports)
	return s, nil
}

// order returns services so that each is after those that it needs.
func order(all map[string]*Service) ([]*Service, error) {
	var out []*Service
	state := map[string]int{} // 1: being visited, 2: done
	var visit func(name string) error
	visit = func(name string) error {
		s := all[name]
		switch state[name] {
		case 1:
			return fmt.Errorf("services.%s.depends_on: the services need each other", name)
		case 2:
			return nil
		}
		state[name] = 1
		for _, need := range s.Needs {
			other := all[need.Service]
			if other == nil {
				return fmt.Errorf("services.%s.depends_on: there is no service %q", name, need.Service)
			}
			if need.Condition == Healthy && other.Health == nil {
				return fmt.Errorf("services.%s.depends_on.%s: the service has no healthcheck", name, need.Service)
			}
			if err := visit(need.Service); err != nil {
				return err
			}
		}
		state[name] = 2
		out = append(out, s)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}
