package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/local"
)

// findTemplate returns the template that has a name or a digest; "" is the
// configured one.
func findTemplate(images *image.Library, config *Config, ref string) (sandbox.Template, error) {
	t, err := images.Get(cmp.Or(ref, config.Template))
	if errors.Is(err, image.ErrNotFound) {
		switch {
		case ref != "":
			return sandbox.Template{}, &berth.Error{Code: berth.CodeNotFound, Param: "berth.template", Message: fmt.Sprintf("Template '%s' not found.", ref)}
		case config.Driver == local.Name:
			return sandbox.Template{}, nil // it runs in this machine's own root
		}
	}
	return sandbox.Template{Digest: t.Digest, Rootfs: t.Rootfs, Env: t.Config.Env}, err
}
