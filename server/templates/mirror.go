package templates

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/image/registry"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/server/config"
)

// A Mirror is a pull-through mirror of registries, with the operator's credentials for it.
type Mirror struct {
	host, path         string // path has no slash at its ends
	plain              bool   // without TLS
	registries         []string
	username, password string
	only               bool
}

// NewMirror returns the mirror of a configuration, or nil if there is none.
func NewMirror(c config.Mirror) (*Mirror, error) {
	if c.URL == "" {
		return nil, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("images.mirror.url: %w", err)
	}
	password, err := c.Password()
	if err != nil {
		return nil, err
	}
	m := &Mirror{host: u.Host, path: strings.Trim(u.Path, "/"), plain: u.Scheme == "http", username: c.Username,
		password: password, only: c.Only}
	for _, of := range c.Registries {
		if of == "docker.io" {
			of = registry.Host("busybox") // as references name it
		}
		m.registries = append(m.registries, of)
	}
	return m, nil
}

// ref returns the reference by which the mirror has an image, or "" if it does not mirror the image's registry.
func (m *Mirror) ref(ref string) string {
	if m == nil || !slices.Contains(m.registries, "*") && !slices.Contains(m.registries, registry.Host(ref)) {
		return ""
	}
	return registry.Moved(ref, m.host, m.path)
}

// find returns an image from the mirror, or else from its registry. Credentials of the request are for the registry
// only, which alone knows whether they open the image.
func (pl *Puller) find(ctx context.Context, ref, user, password string, log func(string)) (image.Image, error) {
	m, own := pl.Mirror, user != "" || password != ""
	at := m.ref(ref)
	if m != nil && m.only {
		switch {
		case at == "":
			return image.Image{}, berth.Invalid("fromImage",
				"This server pulls images only from a mirror, which does not have those of '%s'.", registry.Host(ref))
		case own:
			return image.Image{}, berth.Invalid("fromImageRegistry",
				"This server pulls images only from a mirror, which takes no credentials of a request.")
		}
	}
	if at != "" && !own {
		found, err := registry.Find(ctx, at, registry.Options{Username: m.username, Password: m.password,
			Anonymous: true, Insecure: m.plain, Transport: pl.Proxies.Transport(pl.ways(m.host, true)...),
			UserAgent: pl.UserAgent})
		if err == nil {
			log("Found in the mirror")
			found.Ref = registry.Moved(ref, registry.Host(ref), "")
			return found, nil
		}
		if m.only || ctx.Err() != nil {
			// err names the mirror, which clients need not know.
			return image.Image{}, &berth.Error{Code: berth.CodeInvalid, Param: "fromImage", Err: err,
				Message: fmt.Sprintf("The image '%s' could not be pulled from the mirror of this server.",
					rule.Clip(ref))}
		}
		log("Not in the mirror; asking the registry")
	}
	host := registry.Host(ref)
	listed := slices.Contains(pl.Registries, host)
	return registry.Find(ctx, ref, registry.Options{Username: user, Password: password, Anonymous: true,
		Insecure: listed, Transport: pl.Proxies.Transport(pl.ways(host, listed)...), UserAgent: pl.UserAgent})
}
