package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth/image"
)

// pulled is the image that berth doctor --fix pulls where Debian packages cannot be used.
const pulled = "python:3.12-slim"

// canBuild reports whether this process can build templates from Debian packages.
func canBuild() bool { return image.CheckBuild() == nil }

// templateCommand returns the command that provides a template on this machine.
func templateCommand() string {
	if canBuild() {
		return "berth image build"
	}
	return "berth image pull " + pulled
}

// templateAdvice returns what provides the missing default template on this machine.
func (c *Config) templateAdvice(state string) string {
	if _, standard := image.Standard()[c.Template]; standard {
		return strings.Join(append([]string{templateCommand()}, inState(state)...), " ")
	}
	return strings.Join(append([]string{"berth image ls"}, inState(state)...), " ") +
		" lists the templates; name one of them in the configuration, or build or pull this one"
}

// defaultTemplate returns the default template of a configuration: the one that it names, or the
// only one of the store if it names none.
func (c *Config) defaultTemplate(images *image.Store) (image.Template, error) {
	found, err := images.Get(c.Template)
	if _, named := c.origins["template"]; named || !errors.Is(err, image.ErrNotFound) {
		return found, err
	}
	all, lerr := images.List()
	if lerr != nil {
		return found, err
	}
	only := image.Template{}
	for _, t := range all {
		if t.Name == "" {
			continue
		}
		if only.Digest != "" && only.Digest != t.Digest {
			return found, fmt.Errorf("%w; name one in the configuration, such as template: %s", err, only.Name)
		}
		only = t
	}
	if only.Digest == "" {
		return found, err
	}
	return only, nil
}

// inState returns the arguments of a berth command for a state directory.
func inState(state string, args ...string) []string {
	if state == DefaultState() {
		return args
	}
	return append(args, "--state", state)
}

func checkTemplate(state string, c *Config) (image.Template, Finding) {
	f := Finding{What: "template"}
	dir := filepath.Join(state, "images")
	var store *image.Store
	_, err := os.Stat(dir) // image.Open would create it
	if errors.Is(err, fs.ErrNotExist) {
		err = image.ErrNotFound
	} else if err == nil {
		store, err = image.Open(dir, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		var t image.Template
		if t, err = c.defaultTemplate(store); err == nil {
			f.OK, f.Detail = true, fmt.Sprintf("%s %.19s, %d MB", t.Name, t.Digest, t.Bytes>>20)
			return t, f
		}
	}
	f.Detail = err.Error()
	if building := buildStatusOf(state); building != nil && errors.Is(err, image.ErrNotFound) {
		f.Detail = building.String()
		if building.Failed == "" {
			f.Advice = "containers start when it is ready; the server's log says when"
			return image.Template{}, f
		}
	} else if errors.Is(err, image.ErrNotFound) && store == nil {
		f.Detail = "there is none yet"
	}
	if errors.Is(err, image.ErrNotFound) {
		f.Fix = inState(state, "image", "pull", pulled, "--name", c.Template)
		if canBuild() {
			f.Fix = inState(state, "image", "build", c.Template)
		}
		if _, standard := image.Standard()[c.Template]; canBuild() && !standard {
			f.Fix, f.Advice = nil, "the configuration names it: build or pull it under this name, or name another one"
		}
	}
	return image.Template{}, f
}
