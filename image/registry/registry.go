// Package registry fetches images from container registries.
package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
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

// silence is how long a registry may pause while it sends a blob.
const silence = time.Minute

// Options configures Find. Zero values select the defaults.
type Options struct {
	Platform string // such as linux/arm64; default: this machine's

	// Username and Password are sent only to the registry of the reference. By default,
	// the user's Docker or Podman configuration and its credential helpers supply them.
	Username, Password string

	// Insecure allows plain HTTP to the registry of the reference if it is on this machine.
	// All other registries, and its redirects, still require HTTPS.
	Insecure bool

	UserAgent string

	// Anonymous means that without Username and Password no credentials are sent. It is for
	// references of clients, who may not use those of the user that runs the server.
	Anonymous bool

	// Transport connects to registries. By default there are no limits to their addresses, and proxies
	// of the environment are used.
	Transport *http.Transport
}

// Host returns the registry of a reference, with its port if it has one, or "" if the reference is
// invalid.
func Host(ref string) string {
	r, err := parse(ref)
	if err != nil {
		return ""
	}
	return r.Context().RegistryStr()
}

// Moved returns a reference of the same image, by tag or digest, in another registry, whose repositories are below a
// path. "" is no path. It returns "" if the reference is invalid.
func Moved(ref, host, path string) string {
	r, err := parse(ref)
	if err != nil {
		return ""
	}
	separator := ":"
	if _, ok := r.(name.Digest); ok {
		separator = "@"
	}
	return strings.TrimSuffix(host+"/"+path, "/") + "/" + r.Context().RepositoryStr() + separator + r.Identifier()
}

// The grammar of the registry and of the repository in a reference, as the distribution specification has it. The
// library also accepts others, such as "-x" and "file:///x".
var (
	registryPattern = regexp.MustCompile(
		`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	repositoryPattern = regexp.MustCompile(`^[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)*$`)
)

// parse parses a reference.
func parse(ref string) (name.Reference, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, err
	}
	if of := r.Context(); !registryPattern.MatchString(of.RegistryStr()) ||
		!repositoryPattern.MatchString(of.RepositoryStr()) {
		return nil, fmt.Errorf("%q is not a reference of an image, such as python:3.12 or registry.example.com/app:v1",
			ref)
	}
	return r, nil
}

// ErrNotPublic is the error of a registry whose address is not public. Explain has the same words for a name that
// does not exist: a client must not learn which names this network has.
var ErrNotPublic = errors.New("its registry has no public address, and e2b.registries does not list it")

// Explain returns the fault of a registry or an image, in words for a client that is not the operator:
// without addresses of this network, such as that of the resolver.
func Explain(err error) string {
	if _, unknown := errors.AsType[*net.DNSError](err); unknown || errors.Is(err, ErrNotPublic) {
		return ErrNotPublic.Error()
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		if e.Timeout() {
			return "its registry did not answer in time"
		}
		cause := e.Err
		if call, ok := errors.AsType[*os.SyscallError](cause); ok {
			cause = call.Err
		}
		return "its registry could not be reached: " + cause.Error()
	}
	return err.Error()
}

// Find resolves a reference, "name:tag" or "name@sha256:…", to an image. If it resolves to an
// index, Find selects the image for opts.Platform. Errors contain no credentials.
func Find(ctx context.Context, ref string, opts Options) (image.Image, error) {
	r, err := parse(ref)
	if err != nil {
		return image.Image{}, err
	}
	platform, err := parsePlatform(opts.Platform)
	if err != nil {
		return image.Image{}, err
	}
	allowed := &guard{next: remote.DefaultTransport}
	if opts.Transport != nil {
		t := opts.Transport.Clone()
		t.TLSHandshakeTimeout, t.ResponseHeaderTimeout, t.IdleConnTimeout = silence, silence, silence
		allowed.next = t
	}
	if opts.Insecure {
		allowed.plain = r.Context().RegistryStr()
	}
	puller, err := remote.NewPuller(credentials(opts), remote.WithPlatform(platform),
		remote.WithUserAgent(opts.UserAgent), remote.WithTransport(allowed))
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

// credentials returns the option for opts' credentials.
func credentials(opts Options) remote.Option {
	if opts.Username == "" && opts.Password == "" && opts.Anonymous {
		return remote.WithAuth(authn.Anonymous)
	}
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

// open opens a blob. Reads fail once the registry has sent nothing for silence.
func open(ctx context.Context, puller *remote.Puller, blob name.Digest) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the registry sent nothing for %v", silence)) })
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

// A stream is the content of a blob as it arrives.
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

// errPlain is returned for a request that others on the network could read, or that leads to
// another service of this machine.
var errPlain = errors.New(
	"registries require HTTPS; only a registry on this machine may use plain HTTP, with --insecure")

// errUser is returned for a redirect, or for a realm, with a user name.
var errUser = errors.New("the registry leads to an address with a user name")

// A guard is a RoundTripper that refuses plain HTTP, except to one registry on this machine.
// It is needed because a registry chooses where requests go: by redirects, by the realm of a
// challenge, and, at a private address, by not speaking TLS.
type guard struct {
	next  http.RoundTripper
	plain string // host:port that plain HTTP may reach; "" allows no host
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !(r.URL.Scheme == "http" && g.plain != "" && r.URL.Host == g.plain &&
		isLoopback(r.URL.Hostname())) {
		return nil, errPlain
	}
	if r.URL.User != nil {
		return nil, errUser // a reference has none
	}
	resp, err := g.next.RoundTrip(r)
	if err == nil && isManifest(r) {
		return checked(resp)
	}
	return resp, err
}

// isManifest reports whether a request, or the one that a registry redirected to it, is for a manifest.
func isManifest(r *http.Request) bool {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
	}
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
}

// checked reads a manifest or an index, which the library decodes whole, and checks that it can be decoded.
func checked(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, image.MaxDocument+1))
	if err == nil {
		err = image.CheckDocument(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return resp, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// maxError bounds the length of a registry's error message.
const maxError = 1000

// plain makes an error safe to print on a terminal: it may contain the registry's own words.
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
	return &printableError{text: strings.ToValidUTF8(text[:min(len(text), maxError)], ""), err: err}
}

// A printableError is an error whose text is safe to print.
type printableError struct {
	text string
	err  error
}

func (e *printableError) Error() string { return e.text }
func (e *printableError) Unwrap() error { return e.err }

var unnamable = regexp.MustCompile(`[^a-z0-9._-]+`)

// TemplateName returns the default name for a template of an image, such as "python-3.12"
// for registry.example/library/python:3.12. It returns "" if ref is invalid.
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
