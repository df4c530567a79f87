package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// An origin is where the value of a key was set. The zero origin is the default.
type origin struct {
	name string // path of the file, variable or flag
	line int    // in the file; 0 for a variable or a flag
}

func (o origin) String() string {
	switch {
	case o.name == "":
		return "default"
	case o.line > 0:
		return fmt.Sprintf("%s:%d", o.name, o.line)
	}
	return o.name
}

var (
	keyStart = regexp.MustCompile(`^[a-z_]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*`)
	keyEnd   = regexp.MustCompile(`(?:\.[A-Za-z0-9_-]+|\[\d+\])$`)
)

// In adds to an error where the key was set with which the error begins.
func (c *Config) In(err error) error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 0 {
		var located []error
		for _, e := range all.Unwrap() {
			located = append(located, c.In(e))
		}
		return errors.Join(located...)
	}
	if _, placed := errors.AsType[*placedError](err); placed {
		return err
	}
	begins := keyOf(err)
	if k, ok := errors.AsType[*keyError](err); ok && k.line > 0 {
		return &placedError{fmt.Errorf("%s: %w", origin{c.path, k.line}, err), begins, k.line, false}
	}
	for key := begins; key != ""; {
		if o, set := c.origins[key]; set && o.line == 0 { // a variable or a flag sets the key
			return &placedError{errors.New(o.name + strings.TrimPrefix(err.Error(), key)), begins, 0,
				strings.HasPrefix(o.name, "--")}
		} else if set {
			return &placedError{fmt.Errorf("%s: %w", o, err), begins, o.line, false}
		}
		parent := keyEnd.ReplaceAllString(key, "")
		if parent == key {
			break
		}
		key = parent
	}
	if c.path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// sectionOf returns the section of the key that an error begins with. Models name upstreams, so both
// are one section.
func sectionOf(err error) string {
	key := keyOf(err)
	section, _, _ := strings.Cut(key, ".")
	section, _, _ = strings.Cut(section, "[")
	if section == "upstreams" {
		return "models"
	}
	return section
}

// keyOf returns the key that an error begins with.
func keyOf(err error) string {
	if p, ok := errors.AsType[*placedError](err); ok {
		return p.key
	}
	return keyStart.FindString(strings.TrimPrefix(err.Error(), unknownKey))
}

func lineOf(err error) int {
	if p, ok := errors.AsType[*placedError](err); ok {
		return p.line
	}
	return 0
}

// A placedError is an error that says where its key was set.
type placedError struct {
	error
	key  string // with which the error without the place begins
	line int    // 0 for a variable or a flag
	flag bool   // a flag set it
}

func (e *placedError) Unwrap() error { return e.error }

// At returns where a key was set and the key, before what a message says about it.
func (c *Config) At(key string) string {
	if o, set := c.origins[key]; set {
		return o.String() + ": " + key + " "
	}
	return key + " "
}
