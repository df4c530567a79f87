package compose

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
)

// words parses a command: a list, or a text that is split as a shell splits it.
func words(n yaml.Node) ([]string, error) {
	if n.Kind == yaml.SequenceNode || n.Tag == "!!null" {
		var list []string
		err := decode(&n, &list)
		return list, err
	}
	if n.Kind != yaml.ScalarNode {
		return nil, errors.New("expected a text or a list")
	}
	var all []string
	var word strings.Builder
	inside, quote := false, rune(0)
	escaped := false
	for _, r := range n.Value {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inside = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inside = r, true
		case strings.ContainsRune(" \t\n", r):
			if inside {
				all = append(all, word.String())
			}
			word.Reset()
			inside = false
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quotation does not end")
	}
	if inside {
		all = append(all, word.String())
	}
	return all, nil
}

// pairs parses an environment: a mapping, or a list of NAME=value.
func pairs(n yaml.Node) (map[string]string, error) {
	out := map[string]string{}
	if n.Kind == yaml.SequenceNode {
		var list []string
		if err := decode(&n, &list); err != nil {
			return nil, err
		}
		for _, pair := range list {
			name, value, _ := strings.Cut(pair, "=")
			out[name] = value
		}
		return out, nil
	}
	err := decode(&n, &out)
	return out, err
}

// parseNeeds parses depends_on.
func (s *Service) parseNeeds(n yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		var list []string
		if err := decode(&n, &list); err != nil {
			return err
		}
		for _, name := range list {
			s.Needs = append(s.Needs, Need{name, Started})
		}
		return nil
	}
	var all map[string]struct {
		Condition Condition `yaml:"condition"`
		Required  *bool     `yaml:"required"`
		Restart   bool      `yaml:"restart"`
	}
	if err := decode(&n, &all); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		condition := all[name].Condition
		if condition == "" {
			condition = Started
		}
		if !slices.Contains([]Condition{Started, Healthy, Completed}, condition) {
			return fmt.Errorf("%s.condition: %q is not known", name, condition)
		}
		s.Needs = append(s.Needs, Need{name, condition})
	}
	return nil
}

// parseHealth parses healthcheck.
func (s *Service) parseHealth(n yaml.Node) error {
	var h struct {
		Test        yaml.Node     `yaml:"test"`
		Interval    time.Duration `yaml:"interval"`
		Timeout     time.Duration `yaml:"timeout"`
		StartPeriod time.Duration `yaml:"start_period"`
		Start       time.Duration `yaml:"start_interval"`
		Retries     int           `yaml:"retries"`
		Disable     bool          `yaml:"disable"`
	}
	if err := decode(&n, &h); err != nil {
		return err
	}
	var test []string
	if h.Test.Kind == yaml.ScalarNode {
		test = []string{"CMD-SHELL", h.Test.Value}
	} else if err := decode(&h.Test, &test); err != nil {
		return fmt.Errorf("test: %w", err)
	}
	switch {
	case h.Disable || len(test) > 0 && test[0] == "NONE":
		return nil
	case len(test) == 2 && test[0] == "CMD-SHELL":
		test = []string{"/bin/sh", "-c", test[1]}
	case len(test) > 1 && test[0] == "CMD":
		test = test[1:]
	default:
		return errors.New("test: expected a text, or a list that starts with CMD, CMD-SHELL or NONE")
	}
	out := &Health{Test: test, Interval: h.Interval, Timeout: h.Timeout, StartPeriod: h.StartPeriod, Retries: h.Retries}
	for at, d := range map[string]*time.Duration{"interval": &out.Interval, "timeout": &out.Timeout} {
		if *d == 0 {
			*d = 30 * time.Second // as Docker has it
		}
		if *d < time.Millisecond || *d > time.Hour {
			return fmt.Errorf("%s: expected up to an hour", at)
		}
	}
	if out.Retries == 0 {
		out.Retries = 3
	}
	if out.Retries < 1 || out.Retries > 1000 || out.StartPeriod < 0 || out.StartPeriod > time.Hour {
		return errors.New("retries or start_period is out of range")
	}
	s.Health = out
	return nil
}

// parsePorts parses ports: 8080:80, 127.0.0.1:8080:80/tcp, or a mapping.
func (s *Service) parsePorts(n yaml.Node) error {
	var list []yaml.Node
	if err := decode(&n, &list); err != nil {
		return err
	}
	for _, one := range list {
		text := one.Value
		if one.Kind == yaml.MappingNode {
			var long struct {
				Target    int    `yaml:"target"`
				Published string `yaml:"published"`
				Host      string `yaml:"host_ip"`
				Protocol  string `yaml:"protocol"`
				Mode      string `yaml:"mode"`
			}
			if err := decode(&one, &long); err != nil {
				return err
			}
			text = strconv.Itoa(long.Target)
			if long.Published != "" {
				text = long.Published + ":" + text
			}
			if long.Protocol != "" {
				text += "/" + long.Protocol
			}
		}
		text = strings.TrimSuffix(text, "/tcp")
		last := text[strings.LastIndexByte(text, ':')+1:]
		if err := s.addPort(last); err != nil {
			return err
		}
		s.Published = append(s.Published, text)
	}
	return nil
}

func (s *Service) parseExposed(n yaml.Node) error {
	var list []string
	if err := decode(&n, &list); err != nil {
		return err
	}
	for _, port := range list {
		if err := s.addPort(strings.TrimSuffix(port, "/tcp")); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) addPort(text string) error {
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("%q is not a TCP port; ranges and UDP are not supported", text)
	}
	s.Ports = append(s.Ports, port)
	return nil
}

// parseVolumes parses volumes: NAME:/path[:ro]. There are no binds: the server is on another machine.
func (s *Service) parseVolumes(n yaml.Node) error {
	var list []string
	if err := decode(&n, &list); err != nil {
		return errors.New("expected a list of NAME:/path[:ro]")
	}
	for _, text := range list {
		name, path, _ := strings.Cut(text, ":")
		path, readOnly := strings.CutSuffix(path, ":ro")
		if name == "" || strings.ContainsAny(name, "./~") || !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%q: only volumes of Berth, NAME:/path[:ro]; directories of this machine are not mounted", text)
		}
		s.Volumes = append(s.Volumes, berth.VolumeMount{Name: name, Path: path, ReadOnly: readOnly})
	}
	return nil
}

func (s *Service) parseMemory(n yaml.Node) (err error) {
	s.Memory, err = tier(n.Value)
	return err
}

// parseDeploy parses deploy, of which only a limit of memory counts.
func (s *Service) parseDeploy(n yaml.Node) error {
	var d struct {
		Resources struct {
			Limits struct {
				Memory string `yaml:"memory"`
			} `yaml:"limits"`
		} `yaml:"resources"`
	}
	if err := decode(&n, &d); err != nil || d.Resources.Limits.Memory == "" {
		return err
	}
	var err error
	s.Memory, err = tier(d.Resources.Limits.Memory)
	return err
}

// parseOwn parses x-berth, which has what compose files have no key for.
func (s *Service) parseOwn(n yaml.Node) error {
	var keys map[string]yaml.Node
	if err := decode(&n, &keys); err != nil {
		return err
	}
	for key, node := range keys {
		var err error
		switch key {
		case "template":
			err = decode(&node, &s.Template)
		case "allow":
			err = decode(&node, &s.Allow)
		default:
			err = errors.New("the key is not known; there are template and allow")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

var size = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)i?b?$`)

// tier returns the smallest memory limit of containers that has an amount.
func tier(text string) (string, error) {
	m := size.FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return "", fmt.Errorf("%q is not an amount of memory", text)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return "", fmt.Errorf("%q is not an amount of memory", text)
	}
	n *= math.Pow(1024, float64(strings.Index("kmgt", m[2])+1)*min(1, float64(len(m[2]))))
	for _, name := range []string{"1g", "4g", "16g", "64g"} {
		if n <= float64(berth.MemoryLimits[name]) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%q is more than the 64g that a container may have", text)
}

// decode reads a value.
func decode(n *yaml.Node, to any) error {
	if err := n.Decode(to); err != nil {
		return fmt.Errorf("read the value: %w", err)
	}
	return nil
}
