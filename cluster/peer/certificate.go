// Package peer connects the servers of a cluster to each other, over HTTP/2 and TLS in which both
// sides prove that they have the cluster's key.
//
// Servers of one cluster need no certificates from outside. Each derives the same certificate
// authority from the key that they share anyway (seal.key), and issues itself a certificate for
// its own name. A client expects the name of the server that it calls, so one member cannot pose
// as another at an address that has changed hands.
package peer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// validity is how long a certificate is valid. A server makes a new one long before.
const (
	validity = 30 * 24 * time.Hour
	skew     = time.Hour // by which clocks of servers may differ
)

// An identity proves that a server has the key of the cluster.
type identity struct {
	name   string
	ca     *x509.Certificate
	signer crypto.Signer // of ca
	pool   *x509.CertPool
}

// newIdentity derives the authority of a cluster from its key.
func newIdentity(key [32]byte, name string) (*identity, error) {
	seed, err := hkdf.Key(sha256.New, key[:], nil, "berth cluster certificate authority v1", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the cluster's authority: %w", err)
	}
	signer := ed25519.NewKeyFromSeed(seed)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Berth cluster"},
		// as RFC 5280 writes "no end"
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, signer.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("create the cluster's authority: %w", err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("parse the cluster's authority: %w", err)
	}
	id := &identity{name: name, ca: ca, signer: signer, pool: x509.NewCertPool()}
	id.pool.AddCert(ca)
	return id, nil
}

// issue returns a new certificate for the server's name.
func (id *identity) issue(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("create a serial number: %w", err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: id.name},
		DNSNames:  []string{id.name},
		NotBefore: now.Add(-skew), NotAfter: now.Add(validity), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, id.ca, key.Public(), id.signer)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

var errNotPeer = errors.New("the other side has no certificate of this cluster")

// verify returns the name in the certificate of the other side.
func verify(state tls.ConnectionState) (string, error) {
	if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 ||
		len(state.PeerCertificates[0].DNSNames) != 1 {
		return "", errNotPeer
	}
	return state.PeerCertificates[0].DNSNames[0], nil
}
