package download

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
)

// A Page is what the address of a web page answered.
type Page struct {
	URL       string // after redirects
	MediaType string // its header Content-Type
	Content   []byte // the start of a page that is larger than the Fetcher's limit
}

// errHost is the error of a redirect to a host that the caller refuses.
var errHost = errors.New("the host is not allowed")

// Page reads a web page. allow reports whether the caller wants pages of a host, also of the
// host of each redirect. An error that is a *berth.Error is for the client.
func (f *Fetcher) Page(ctx context.Context, address string, allow func(host string) bool) (Page, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return Page{},
			berth.Invalid("", "The page could not be opened: expected an http or https URL without a user name.")
	}
	if !allow(u.Hostname()) {
		return Page{}, refused(u.Hostname())
	}
	client, host := *f.client, ""
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if err := follow(req, via); err != nil {
			return err
		}
		if host = req.URL.Hostname(); !allow(host) {
			return errHost
		}
		return nil
	}
	resp, content, why, err := f.get(ctx, &client, address)
	switch {
	case ctx.Err() != nil && err != nil:
		return Page{}, context.Cause(ctx)
	case errors.Is(err, errHost):
		return Page{}, refused(host)
	case why != "":
		return Page{}, &berth.Error{Code: berth.CodeInvalid, Message: "The page could not be opened: " + why + ".",
			Err: err}
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return Page{},
			berth.Invalid("",
				"The page could not be opened: its host sent it in the encoding %q, which was not requested.", coding)
	}
	content = content[:min(int64(len(content)), f.most)]
	return Page{URL: resp.Request.URL.String(), MediaType: resp.Header.Get("Content-Type"), Content: content}, nil
}

func refused(host string) error {
	return berth.Invalid("", "The page could not be opened: the request's filters do not allow '%s'.",
		host)
}
