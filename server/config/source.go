package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Sources are the places from which a configuration is read.
type Sources struct {
	Path  string            // of the file; "" is none
	Flags map[string]string // values of the flags that are set, by name

	// Check checks values further. Nil is for no more checks. The error begins with a key, as those of Verify.
	Check func(*Config) error

	// Verify checks what the configuration names: files, variables. It checks models only if models is set,
	// because they are valid then. Its errors are reported with all others. Nil is for no such checks.
	Verify func(c *Config, models bool) []error
}

// Load reads a configuration. Its error has a line for each invalid value, which names the file and
// line, the variable or the flag, the key, and the allowed values.
func Load(from Sources) (*Config, error) {
	var unreadable []error
	c := Default()
	c.path, c.origins = from.Path, map[string]origin{}
	if from.Path != "" {
		text, err := os.ReadFile(from.Path)
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		unreadable = c.decode(text)
	}
	for _, s := range Settings {
		if value := os.Getenv(s.Variable()); value != "" {
			unreadable = append(unreadable, c.set(s.Key, value, origin{name: s.Variable()})...)
		}
		if value, set := from.Flags[s.Flag]; set {
			unreadable = append(unreadable, c.set(s.Key, value, origin{name: "--" + s.Flag})...)
		}
	}
	if _, set := c.origins["shell.timeout"]; !set {
		c.Shell.Timeout = min(c.Shell.Timeout, c.Shell.MaxTimeout)
	}
	invalid := c.check(from.Check)
	if from.Verify != nil {
		invalid = errors.Join(invalid, c.verifyBeside(from.Verify, unreadable, invalid))
	}
	if err := c.Problems(unreadable, invalid); err != nil {
		return nil, err
	}
	return c, nil
}

// verifyBeside returns the errors of verify in the sections that have no other errors.
func (c *Config) verifyBeside(verify func(*Config, bool) []error, unreadable []error, invalid error) error {
	wrong := map[string]bool{}
	for _, err := range slices.Concat(unreadable, Flatten(invalid)) {
		wrong[sectionOf(err)] = true
	}
	var found []error
	for _, err := range verify(c, !wrong["models"]) {
		if !wrong[sectionOf(err)] {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

// set sets a key to the text of a variable or a flag.
func (c *Config) set(key, value string, from origin) []error {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	if (Setting{Key: key}).IsBool() && (value == "true" || value == "false") {
		n.Tag = "!!bool"
	}
	parts := strings.Split(key, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		n = &yaml.Node{Kind: yaml.MappingNode,
			Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: parts[i]}, n}}
	}
	c.origins[key] = from
	r := keyReader{lines: map[string]int{}, problems: new([]error)}
	r.check(n, reflect.TypeFor[Config](), keyPath{})
	if len(*r.problems) == 0 {
		r.fail(n, c.In(n.Decode(c)))
	}
	var located []error // while the origin is that of this value
	for _, err := range *r.problems {
		located = append(located, c.In(err))
	}
	return located
}

// decode parses the text of a file. Its errors name keys. The values of other keys are set.
func (c *Config) decode(text []byte) []error {
	var document, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil // empty, or comments only
	} else if err != nil {
		return []error{invalidYAML(err, text)}
	}
	if err := d.Decode(&second); err == nil {
		return []error{&keyError{max(second.Line, 1),
			"a second YAML document begins here; put all keys into one, without a line ---"}}
	} else if !errors.Is(err, io.EOF) {
		return []error{invalidYAML(err, text)}
	}
	if len(document.Content) == 0 {
		return nil
	}
	expandStore(document.Content[0])
	r := keyReader{lines: map[string]int{}, problems: new([]error)}
	r.check(document.Content[0], reflect.TypeFor[Config](), keyPath{})
	for key, line := range r.lines {
		c.origins[key] = origin{c.path, line}
	}
	if err := document.Decode(c); err != nil && len(*r.problems) == 0 {
		return []error{fmt.Errorf("invalid configuration: %w", err)}
	}
	return *r.problems
}

// expandStore replaces the short form "store: URL".
func expandStore(top *yaml.Node) {
	if top.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		if v := top.Content[i+1]; top.Content[i].Value == "store" && v.Kind == yaml.ScalarNode &&
			v.ShortTag() == "!!str" {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "url", Line: v.Line}
			top.Content[i+1] = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{key, v},
				Line: v.Line}
		}
	}
}
