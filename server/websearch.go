package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/download"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/tool/websearch"
	"github.com/berth-run/berth/tool/websearch/backend"
	"github.com/berth-run/berth/vectorstore"
	"github.com/berth-run/berth/vectorstore/document"
)

// pageCPU is how long the reader of one web page may compute, in seconds.
const pageCPU = 10

// webSearchOptions returns the tool's options. They have no backend if none is configured.
func webSearchOptions(c config.WebSearch, proxies *proxy.Selector, log *slog.Logger) (websearch.Options, error) {
	o := websearch.Options{Log: log}
	if c.Backend == "" {
		return o, nil
	}
	key, err := c.Key()
	if err != nil {
		return o, err
	}
	if o.Backend, err = backend.New(backend.Options{Name: c.Backend, URL: c.URL, Key: key, Timeout: c.Timeout,
		Transport: proxies.Transport(), Log: log}); err != nil {
		return o, fmt.Errorf("web_search.%w", err)
	}
	if policy := policyOf(c.Allowed, c.Private); policy != nil {
		o.Fetcher = download.New(gateOf(policy, proxies), websearch.MaxPage)
	}
	o.Markdown = func(ctx context.Context, address, mediaType string, content io.Reader) (title, markdown string,
		err error) {
		title, markdown, err = document.WebPage(ctx, document.Child{CPU: pageCPU}, address, mediaType, content)
		return title, markdown, forModel(err)
	}
	o.Text = func(ctx context.Context, name string, content io.Reader) (string, error) {
		text, err := document.Text(ctx, document.Child{CPU: pageCPU}, name, content)
		return text, forModel(err)
	}
	return o, nil
}

// forModel returns an error about the content of a page as one that the model is shown.
func forModel(err error) error {
	if bad, ok := errors.AsType[*vectorstore.Unreadable](err); ok {
		return &berth.Error{Code: berth.CodeInvalid, Message: "The page could not be read. " + bad.Message}
	}
	return err
}
