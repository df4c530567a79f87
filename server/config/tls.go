package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"
)

// ServerTLS makes the server speak HTTPS, with a certificate from files or from an ACME
// authority. Default: plain HTTP.
type ServerTLS struct {
	CertFile string `yaml:"cert_file"` // PEM, the server's certificate first, with:
	KeyFile  string `yaml:"key_file"`  // PEM
	ACME     ACME   `yaml:"acme"`
}

// ACME obtains and renews certificates. The authority connects to port 443 of each domain,
// which must lead to server.listen, or to port 80, which must lead to Listen. Using it accepts the
// authority's terms of service.
type ACME struct {
	Domains   []string `yaml:"domains"`   // of the certificates
	Email     string   `yaml:"email"`     // for the authority's messages
	Directory string   `yaml:"directory"` // URL of the authority. Default: Let's Encrypt
	// authorities that Directory's own certificate is verified with. Default: this machine's
	CAFile string `yaml:"ca_file"`
	// address for challenges over plain HTTP, such as :80, which redirects all else to HTTPS. Default: none
	Listen string `yaml:"listen"`
}

var acmeDomain = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (c ServerTLS) check() error {
	a := c.ACME
	switch {
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("server.tls needs both cert_file and key_file")
	case c.CertFile != "" && len(a.Domains) > 0:
		return errors.New("server.tls has both cert_file and acme; remove one")
	case len(a.Domains) == 0 && (a.Email != "" || a.Directory != "" || a.CAFile != "" || a.Listen != ""):
		return errors.New("server.tls.acme needs domains")
	}
	for i, d := range a.Domains {
		if !acmeDomain.MatchString(d) || net.ParseIP(d) != nil {
			return fmt.Errorf("server.tls.acme.domains[%d]: %q is not a domain such as berth.example.com", i, d)
		}
	}
	return nil
}

// ReadCertificate reads a certificate and its key.
func ReadCertificate(c ServerTLS) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("server.tls.cert_file: %w", err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("server.tls.cert_file: the certificate expired at %s",
			pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	return &pair, nil
}
