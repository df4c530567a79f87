package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// authorityLife is how long a container's authority is valid, which is longer than any
// container lives.
const authorityLife = 5 * 365 * 24 * time.Hour

// An Authority is a certificate authority that only one container trusts. It signs the
// certificates of hosts whose connections are intercepted. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// NewAuthority creates an authority with a new key.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("egress: generate key: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Berth egress of " + name}, SerialNumber: serial(),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("egress: create certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("egress: parse certificate: %w", err)
	}
	return &Authority{cert: cert, key: key, leaves: map[string]*tls.Certificate{}}, nil
}

// ParseAuthority parses the output of Marshal.
func ParseAuthority(text []byte) (*Authority, error) {
	first, rest := pem.Decode(text)
	second, _ := pem.Decode(rest)
	if first == nil || second == nil {
		return nil, errors.New("egress: an authority must be a certificate and a key in PEM")
	}
	cert, err := x509.ParseCertificate(first.Bytes)
	if err != nil {
		return nil, fmt.Errorf("egress: parse certificate: %w", err)
	}
	key, err := x509.ParseECPrivateKey(second.Bytes)
	if err != nil {
		return nil, fmt.Errorf("egress: parse key: %w", err)
	}
	return &Authority{cert: cert, key: key, leaves: map[string]*tls.Certificate{}}, nil
}

// Marshal returns the authority with its key, in PEM.
func (a *Authority) Marshal() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("egress: marshal key: %w", err)
	}
	return append(a.PEM(), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...), nil
}

// PEM returns the certificate, which is installed in the container.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// certificate returns a tls.Config.GetCertificate function for a host.
func (a *Authority) certificate(host string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if leaf := a.leaves[host]; leaf != nil {
			return leaf, nil
		}
		leaf, err := a.issue(host)
		if err == nil {
			a.leaves[host] = leaf
		}
		return leaf, err
	}
}

func (a *Authority) issue(host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("egress: generate key: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: clipName(host)}, DNSNames: []string{host}, SerialNumber: serial(),
		// clients refuse certificates valid for years
		NotBefore: a.cert.NotBefore, NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("egress: create certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}, nil
}

// clipName truncates a common name to the 64 characters that X.509 allows.
func clipName(host string) string {
	if len(host) > 64 {
		return host[:64]
	}
	return host
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // rand never fails
	}
	return n
}
