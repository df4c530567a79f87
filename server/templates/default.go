package templates

import (
	"errors"
	"fmt"
	"strings"

	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/server/config"
)

// PulledByDefault is the image that berth doctor --fix pulls where Debian packages cannot be used.
const PulledByDefault = "python:3.12-slim"

// CanBuild reports whether this process can build templates from Debian packages.
func CanBuild() bool { return image.CheckBuild() == nil }

// templateCommand returns the command that provides a template on this machine.
func templateCommand() string {
	if CanBuild() {
		return "berth image build"
	}
	return "berth image pull " + PulledByDefault
}

// Advice returns what provides the missing default template on this machine.
func Advice(c *config.Config, state string) string {
	if _, standard := image.Standard()[c.Template]; standard {
		return strings.Join(append([]string{templateCommand()}, config.InState(state)...), " ")
	}
	return strings.Join(append([]string{"berth image ls"}, config.InState(state)...), " ") +
		" lists the templates; name one of them in the configuration, or build or pull this one"
}

// Default returns the default template of a configuration: the one that it names, or the
// only one of the store if it names none.
func Default(c *config.Config, images *image.Store) (image.Template, error) {
	found, err := images.Get(c.Template)
	if c.IsSet("template") || !errors.Is(err, image.ErrNotFound) {
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
