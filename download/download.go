// Package download reads files at URLs that clients name, within the operator's bounds.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
)

const (
	fetchTime = 30 * time.Second // for one file, all of it
	maxName   = 255              // of a file, in bytes
)

// A Fetcher reads files over HTTP. It is safe for concurrent use.
type Fetcher struct {
	client *http.Client
	most   int64
}

// New returns a Fetcher that reaches what the gate allows. It reads one byte more than
// most of a file that is larger, which tells the caller that it is.
func New(g *egress.Gate, most int64) *Fetcher {
	client := g.Client(fetchTime)
	client.CheckRedirect = follow
	return &Fetcher{client: client, most: most}
}

// maxRedirects bounds the redirects that lead to a file.
const maxRedirects = 5

var (
	errRedirects = errors.New("too many redirects")
	errScheme    = errors.New("redirect to another scheme")
	errUser      = errors.New("redirect to an address with a user name")
)

// follow decides whether a redirect is followed.
func follow(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return errRedirects
	case req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "":
		return errScheme
	case req.URL.User != nil:
		return errUser
	}
	return nil
}

// Fetch implements engine.Fetcher. Its errors do not show what the host answered, which
// is none of the caller's business where the host is inside.
func (f *Fetcher) Fetch(ctx context.Context, address string) (name string, content []byte, err error) {
	resp, content, why, err := f.get(ctx, f.client, address)
	switch {
	case ctx.Err() != nil && err != nil:
		return "", nil, context.Cause(ctx)
	case why != "":
		return "", nil, &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_file_url",
			Message: "The file could not be downloaded: " + why + ".", Err: err}
	}
	return nameOf(resp), content, nil
}

// get reads an address. If it cannot, why is the reason for the client, and err may be its
// cause.
func (f *Fetcher) get(ctx context.Context, client *http.Client, address string) (resp *http.Response, content []byte,
	why string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, "the URL is malformed", fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("User-Agent", "Berth")
	resp, err = client.Do(req)
	switch {
	case errors.Is(err, egress.ErrRefused):
		return nil, nil, "its host does not exist, or this server may not reach it", err
	case errors.Is(err, errRedirects):
		return nil, nil, fmt.Sprintf("its host redirects more than %d times; use the address where the redirects end",
			maxRedirects), err
	case errors.Is(err, errScheme):
		return nil, nil, "its host redirects to an address that is not http or https; use another address", err
	case errors.Is(err, errUser):
		return nil, nil, "its host redirects to an address with a user name; use another address", err
	case err != nil:
		return nil, nil, "its host could not be reached", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Sprintf("its host answered %d", resp.StatusCode), nil
	}
	content, err = io.ReadAll(io.LimitReader(resp.Body, f.most+1))
	if err != nil {
		return nil, nil, "it did not arrive whole", err
	}
	return resp, content, "", nil
}

// nameOf returns a name for a file, whose extension tells its type: the one that its host
// gives it, or the last element of its URL.
func nameOf(resp *http.Response) string {
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
	name := ""
	if err == nil {
		name = path.Base(params["filename"])
	}
	if name == "" || name == "." || name == "/" {
		name = lastElement(resp.Request.URL)
	}
	if path.Ext(name) == "" {
		if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil {
			if known, err := mime.ExtensionsByType(kind); err == nil && len(known) > 0 {
				name += known[0]
			}
		}
	}
	if len(name) > maxName {
		name = name[len(name)-maxName:]
	}
	return strings.ToValidUTF8(name, "")
}

func lastElement(u *url.URL) string {
	if name := path.Base(u.Path); name != "." && name != "/" {
		return name
	}
	return "file"
}
