package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// SearchBackends are the values of web_search.backend.
var SearchBackends = []string{"brave", "http", "searxng", "tavily"}

// WebSearch configures the web_search tool.
type WebSearch struct {
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

// Check validates what does not depend on the environment.
func (c *WebSearch) Check() error {
	switch {
	case c.Backend == "" && (c.URL != "" || c.APIKey != "" || c.APIKeyEnv != ""):
		return errors.New("web_search.backend is missing: name the search service")
	case c.APIKey != "" && c.APIKeyEnv != "":
		return errors.New("web_search has both api_key and api_key_env")
	}
	return nil
}

// Key returns the key of the service, or "". It returns an error if the environment variable of the key is not set.
func (c *WebSearch) Key() (string, error) {
	if c.APIKeyEnv == "" {
		return c.APIKey, nil
	}
	key := strings.TrimSpace(os.Getenv(c.APIKeyEnv))
	if key == "" {
		return "", fmt.Errorf("web_search.api_key_env: %s is not set in the environment", c.APIKeyEnv)
	}
	return key, nil
}

// ImageGeneration configures the image_generation tool.
type ImageGeneration struct {
	// Model is the name of a model that generates images, as clients would name it. Its
	// upstream must have /v1/images/generations. Default: none; the tool is refused.
	Model string `yaml:"model"`
}
