package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/download"
	"github.com/berth-run/berth/tool/websearch"
	"github.com/berth-run/berth/tool/websearch/backend"
	"github.com/berth-run/berth/vectorstore"
	"github.com/berth-run/berth/vectorstore/document"
)

// WebSearchConfig configures the web_search tool.
type WebSearchConfig struct {
	// Backend is the service that searches: searxng, brave, tavily, or http, a service of
	// your own. Default: none; the tool is refused.
	Backend string `yaml:"backend"`

	URL       string        `yaml:"url"`         // of the service. Required for searxng and http. Default: the vendor's
	APIKey    string        `yaml:"api_key"`     // required for brave and tavily, or:
	APIKeyEnv string        `yaml:"api_key_env"` // name of the environment variable with the key
	Timeout   time.Duration `yaml:"timeout"`     // of one search. Default: 20s

	// Allowed are the hosts whose pages may be opened, as in containers.network.allowed.
	// Default: anything public. [] opens no pages.
	Allowed []EgressRule `yaml:"allowed"`

	// Private are names with private addresses, and private addresses. Default: nothing.
	Private []EgressRule `yaml:"private"`
}

// check validates what does not depend on the environment.
func (c *WebSearchConfig) check() error {
	switch {
	case c.Backend == "" && (c.URL != "" || c.APIKey != "" || c.APIKeyEnv != ""):
		return errors.New("web_search.backend is missing: name the search service")
	case c.APIKey != "" && c.APIKeyEnv != "":
		return errors.New("web_search has both api_key and api_key_env")
	case c.Backend == "":
		return nil
	}
	key := c.APIKey
	if c.APIKeyEnv != "" {
		key = "from the environment"
	}
	if _, err := backend.New(backend.Options{Name: c.Backend, URL: c.URL, Key: key}); err != nil {
		return fmt.Errorf("web_search.%w", err)
	}
	return nil
}

// pageCPU is how long the reader of one web page may compute, in seconds.
const pageCPU = 10

// options returns the tool's options. They have no backend if none is configured.
func (c *WebSearchConfig) options(log *slog.Logger) (websearch.Options, error) {
	o := websearch.Options{Log: log}
	if c.Backend == "" {
		return o, nil
	}
	key := c.APIKey
	if c.APIKeyEnv != "" {
		if key = strings.TrimSpace(os.Getenv(c.APIKeyEnv)); key == "" {
			return o, fmt.Errorf("web_search.api_key_env: %s is not set in the environment", c.APIKeyEnv)
		}
	}
	var err error
	if o.Backend, err = backend.New(backend.Options{Name: c.Backend, URL: c.URL, Key: key, Timeout: c.Timeout,
		Log: log}); err != nil {
		return o, fmt.Errorf("web_search.%w", err)
	}
	if policy := policyOf(c.Allowed, c.Private); policy != nil {
		o.Fetcher = download.New(policy, websearch.MaxPage)
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
