package remote

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// findCredentials returns the credentials of a profile of AWS's shared files or, if it is empty, of
// the first place that has some: the environment, the shared files, the machine or its container.
func findCredentials(profile string) *credentials.Credentials {
	shared := &credentials.FileAWSCredentials{Profile: profile}
	if profile != "" {
		return credentials.New(&chain{from: []credentials.Provider{shared}})
	}
	from := []credentials.Provider{&credentials.EnvAWS{}, shared}
	if os.Getenv("AWS_EC2_METADATA_DISABLED") != "true" || os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
		from = append(from, &credentials.IAM{Client: &http.Client{Timeout: roleTimeout}})
	}
	return credentials.New(&chain{from: from})
}

// CheckCredentials returns an error if this machine has no credentials for a bucket. It does not contact
// the bucket.
func CheckCredentials(at *Location) error {
	if _, err := findCredentials(at.profile).GetWithContext(nil); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// roleTimeout bounds a request for the credentials of a role.
const roleTimeout = 10 * time.Second

// A chain provides the credentials of the first provider that has some. Unlike credentials.Chain it
// fails if none has: a request without credentials would be refused with a misleading error.
type chain struct {
	from []credentials.Provider
	last credentials.Provider // that provided some
}

// RetrieveWithCredContext implements credentials.Provider.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var all error
	for _, p := range c.from {
		v, err := p.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.last = p
			return v, nil
		}
		all = errors.Join(all, err)
	}
	if all == nil {
		return credentials.Value{}, errNoCredentials
	}
	return credentials.Value{}, fmt.Errorf("%w: %w", errNoCredentials, all)
}

var errNoCredentials = errors.New(
	"no credentials of the bucket are found, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")

// Retrieve implements credentials.Provider.
func (c *chain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider.
func (c *chain) IsExpired() bool { return c.last == nil || c.last.IsExpired() }
