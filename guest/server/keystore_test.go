package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// TestKeystore reads a JKS file by its format: u4 magic, u4 version, u4 entries,
// each of them u4 kind, text alias, u8 time, text type, u4 size, certificate; then
// the digest.
func TestKeystore(t *testing.T) {
	var bundle []byte
	want := map[string]bool{}
	for i := range 3 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(i) + 1), NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		want[string(der)] = true
		bundle = append(bundle, "# a comment\n"...)
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})...)

	file := keystore(bundle)
	store, digest := file[:len(file)-20], file[len(file)-20:]
	if again := keystoreDigest(store); !bytes.Equal(digest, again[:]) {
		t.Error("the digest is not that of the store")
	}
	r := bytes.NewReader(store)
	u4 := func() (n uint32) { _ = binary.Read(r, binary.BigEndian, &n); return n }
	text := func() string {
		var n uint16
		_ = binary.Read(r, binary.BigEndian, &n)
		b := make([]byte, n)
		_, _ = r.Read(b)
		return string(b)
	}
	if magic, version, count := u4(), u4(), u4(); magic != 0xfeedfeed || version != 2 || count != 3 {
		t.Fatalf("got %x, version %d, %d entries", magic, version, count)
	}
	aliases := map[string]bool{}
	for range 3 {
		if kind := u4(); kind != 2 {
			t.Fatalf("got an entry of kind %d", kind)
		}
		aliases[text()] = true
		var made int64
		_ = binary.Read(r, binary.BigEndian, &made)
		if age := time.Since(time.UnixMilli(made)); age < 0 || age > time.Hour {
			t.Errorf("made %v ago", age)
		}
		if kind := text(); kind != "X.509" {
			t.Errorf("got a certificate of type %q", kind)
		}
		der := make([]byte, u4())
		_, _ = r.Read(der)
		if !want[string(der)] {
			t.Error("got a certificate that was not in the bundle")
		}
		delete(want, string(der))
	}
	if len(want) != 0 || len(aliases) != 3 || r.Len() != 0 {
		t.Errorf("%d certificates are missing, %d aliases, %d bytes too many", len(want), len(aliases), r.Len())
	}
}
