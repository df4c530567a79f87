package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A authority signs the cluster's certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority creates ca.crt in dir.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	a := &authority{dir: dir, key: key}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubetest"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return a, writePEM(a.path("ca.crt"), "CERTIFICATE", der)
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// issue creates NAME.crt and NAME.key for a user, or a server at these addresses.
func (a *authority) issue(name, user string, groups []string, addresses ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return fmt.Errorf("make serial number: %w", err)
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: user, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	for _, s := range addresses {
		if ip := net.ParseIP(s); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, s)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key of %s: %w", name, err)
	}
	return errors.Join(writePEM(a.path(name+".crt"), "CERTIFICATE", der), writePEM(a.path(name+".key"),
		"EC PRIVATE KEY", raw))
}

// kubeconfig writes NAME.kubeconfig for the user of NAME.crt.
func (a *authority) kubeconfig(name string) (string, error) {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test, namespace: %s}}]
clusters: [{name: test, cluster: {server: %s, certificate-authority: ca.crt}}]
users: [{name: test, user: {client-certificate: %s.crt, client-key: %[3]s.key}}]
`, Namespace, server, name)
	path := a.path(name + ".kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
