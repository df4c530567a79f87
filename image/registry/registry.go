// Package registry finds images in container registries.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"time"
	"unicode"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/berth-run/berth/image"
)

// silence is how long a registry may send nothing of a blob.
const silence = time.Minute

// Options say how a registry is asked. Zero values are the defaults.
type Options struct {
	Platform string // of the image, such as linux/arm64; default this machine's

	// Username and Password are shown to the registry of the reference alone.
	// Default: what the user's Docker or Podman configuration has for it, credential
	// helpers included, or else nothing.
	Username, Password string

	// Insecure allows plain HTTP to the registry of the reference, if it is on this
	// machine. All others, and where it redirects to, are asked by HTTPS.
	Insecure bool

	UserAgent string
}

// Find returns the image that a reference, "name:tag" or "name@sha256:…", stands
// for. Of an index it is the one of the platform. Errors hold no credentials.
func Find(ctx context.Context, ref string, opts Options) (image.Image, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return image.Image{}, err
	}
	platform, err := parsePlatform(opts.Platform)
	if err != nil {
		return image.Image{}, err
	}
	allowed := &guard{next: remote.DefaultTransport}
	if opts.Insecure {
		allowed.plain = r.Context().RegistryStr()
	}
	puller, err := remote.NewPuller(credentials(opts), remote.WithPlatform(platform), remote.WithUserAgent(opts.UserAgent), remote.WithTransport(allowed))
	if err != nil {
		return image.Image{}, err
	}
	found, err := puller.Get(ctx, r)
	if err != nil {
		return image.Image{}, plain(err)
	}
	one, err := found.Image()
	if err != nil {
		return image.Image{}, plain(err)
	}
	manifest, err := one.RawManifest()
	if err != nil {
		return image.Image{}, plain(err)
	}
	return image.Image{Ref: r.Name(), Digest: found.Digest.String(), Manifest: manifest,
		Open: func(ctx context.Context, b image.Blob) (io.ReadCloser, error) {
			return open(ctx, puller, r.Context().Digest(b.Digest))
		}}, nil
}

// credentials returns who is asking.
func credentials(opts Options) remote.Option {
	if opts.Username == "" && opts.Password == "" {
		return remote.WithAuthFromKeychain(authn.DefaultKeychain)
	}
	return remote.WithAuth(&authn.Basic{Username: opts.Username, Password: opts.Password})
}

func parsePlatform(s string) (v1.Platform, error) {
	p, err := v1.ParsePlatform(cmp.Or(s, "linux/"+runtime.GOARCH))
	if err != nil || p.OS != "linux" || p.Architecture == "" {
		return v1.Platform{}, fmt.Errorf("%q is not a platform such as linux/amd64", s)
	}
	return *p, nil
}

// open opens a blob. A registry that falls silent ends it.
func open(ctx context.Context, puller *remote.Puller, blob name.Digest) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the registry has sent nothing for %v", silence)) })
	why := func(err error) error {
		if err != nil && err != io.EOF && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return plain(err)
	}
	l, err := puller.Layer(ctx, blob)
	var body io.ReadCloser
	if err == nil {
		body, err = l.Compressed()
	}
	if err != nil {
		timer.Stop()
		defer cancel(nil)
		return nil, why(err)
	}
	return &stream{body: body, timer: timer, why: why, cancel: func() { cancel(nil) }}, nil
}

// A stream is the content of a blob as it comes.
type stream struct {
	body   io.ReadCloser
	timer  *time.Timer
	why    func(error) error
	cancel func()
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 {
		s.timer.Reset(silence)
	}
	return n, s.why(err)
}

func (s *stream) Close() error {
	s.timer.Stop()
	defer s.cancel()
	return s.body.Close()
}

// errPlain is the error for a request that others on the network could read, or that
// leads to another service of this machine.
var errPlain = errors.New("registries are asked by HTTPS; plain HTTP is for a registry on this machine that the reference names, when it is allowed (--insecure)")

// A guard lets out no request in plain HTTP, except to one registry on this machine. A
// registry chooses where requests go: by redirects, by the realm of a challenge, and, if
// its address is private, by not answering in TLS.
type guard struct {
	next  http.RoundTripper
	plain string // host and port that may be asked in plain HTTP; none if it is empty
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !(r.URL.Scheme == "http" && g.plain != "" && r.URL.Host == g.plain && isLoopback(r.URL.Hostname())) {
		return nil, errPlain
	}
	return g.next.RoundTrip(r)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// maxError bounds what a registry says of an error.
const maxError = 1000

// plain makes an error that holds a registry's own words fit for a terminal.
func plain(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == ' ' {
			return r
		}
		return ' '
	}, err.Error())
	return &said{text: strings.ToValidUTF8(text[:min(len(text), maxError)], ""), err: err}
}

type said struct {
	text string
	err  error
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.err }

var unnamable = regexp.MustCompile(`[^a-z0-9._-]+`)

// TemplateName returns the name that a template of an image has if nobody says:
// "python-3.12" for registry.example/library/python:3.12.
func TemplateName(ref string) string {
	r, err := name.ParseReference(ref)
	if err != nil {
		return ""
	}
	repository := r.Context().RepositoryStr()
	s := repository[strings.LastIndex(repository, "/")+1:]
	if tag, ok := r.(name.Tag); ok && tag.TagStr() != "latest" {
		s += "-" + tag.TagStr()
	}
	s = strings.TrimLeft(unnamable.ReplaceAllString(strings.ToLower(s), "-"), "._-")
	return s[:min(len(s), 64)]
}
