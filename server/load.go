package server

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/routing"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/tool/websearch/backend"
)

// Load reads a configuration and checks it, also what only the packages know that use it.
func Load(from config.Sources) (*config.Config, error) {
	from.Check = checkValues
	return config.Load(from)
}

// LoadVerified is Load, and also checks what Verify checks. It reports all errors together.
func LoadVerified(from config.Sources) (*config.Config, error) {
	from.Verify = verify
	return Load(from)
}

// checkValues checks the values whose form only other packages know.
func checkValues(c *config.Config) error {
	return errors.Join(checkStore(c), checkBlobs(c), checkWebSearch(c))
}

// checkStore checks the key store.url. The error does not contain the value, which may have a
// password.
func checkStore(c *config.Config) error {
	if c.Store.URL == "" || postgres.ValidURL(c.Store.URL) {
		return nil
	}
	return errors.New(
		"store.url must be the URL of a PostgreSQL database, such as postgres://user@host:5432/berth?sslmode=verify-full, with special characters of the password percent-encoded")
}

// checkBlobs checks the key blobs.
func checkBlobs(c *config.Config) error {
	if c.Blobs == "" {
		return nil
	}
	if _, err := remote.Parse(c.Blobs); err != nil {
		return fmt.Errorf("blobs: %w", err)
	}
	return nil
}

// checkWebSearch checks the address of the search service, and whether the service needs a key.
func checkWebSearch(c *config.Config) error {
	s := c.WebSearch
	if s.Backend == "" || s.Check() != nil {
		return nil
	}
	key := s.APIKey
	if s.APIKeyEnv != "" {
		key = "from the environment"
	}
	if _, err := backend.New(backend.Options{Name: s.Backend, URL: s.URL, Key: key}); err != nil {
		return fmt.Errorf("web_search.%w", err)
	}
	return nil
}

// Verify checks what a server needs at its start besides the state directory: keys in the
// environment and certificate files. It returns all errors that it finds.
func Verify(c *config.Config) error {
	return c.Problems(nil, errors.Join(verify(c, true)...))
}

// verify returns the errors of Verify. It leaves out those of models unless models is set.
func verify(c *config.Config, models bool) []error {
	var wrong []error
	if models {
		routes, err := routing.Open(c, nil, slog.New(slog.DiscardHandler))
		if wrong = config.Flatten(err); err == nil {
			wrong = routing.Unrouted(routes.Router, c.Images.Model, c.Vectors.EmbeddingModel)
		}
	}
	_, err := webSearchOptions(c.WebSearch, nil, slog.New(slog.DiscardHandler))
	wrong = append(wrong, config.Flatten(err)...)
	if _, err := c.SignIn.Secret(); err != nil {
		wrong = append(wrong, err)
	}
	if c.Server.TLS.CertFile != "" {
		_, err := config.ReadCertificate(c.Server.TLS)
		wrong = append(wrong, config.Flatten(err)...)
	}
	_, err = networkOptions(c)
	return append(wrong, config.Flatten(err)...)
}
