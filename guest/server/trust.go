package server

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// bundle is the file in which Debian, and with it most images, store trusted authorities.
// The variables of trusted point other programs to it.
const bundle = "/etc/ssl/certs/ca-certificates.crt"

// javaStore is the same for Java, which does not read PEM.
const javaStore = "/etc/ssl/certs/berth.jks"

// trusted are the environment variables that make programs with authorities of their own
// use the system's.
var trusted = map[string]string{
	"SSL_CERT_FILE":       bundle, // OpenSSL, Go, Ruby
	"CURL_CA_BUNDLE":      bundle,
	"GIT_SSL_CAINFO":      bundle,
	"REQUESTS_CA_BUNDLE":  bundle, // Python's requests
	"PIP_CERT":            bundle,
	"NODE_EXTRA_CA_CERTS": bundle,
	"AWS_CA_BUNDLE":       bundle,
	"CARGO_HTTP_CAINFO":   bundle,
	"DENO_CERT":           bundle,
	"JAVA_TOOL_OPTIONS":   "-Djavax.net.ssl.trustStore=" + javaStore + " -Djavax.net.ssl.trustStoreType=JKS",
}

// trust adds authorities to those of the sandbox.
func trust(authorities []byte) error {
	if len(bytes.TrimSpace(authorities)) == 0 {
		return nil
	}
	have, err := os.ReadFile(bundle)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known := map[string]bool{}
	for block, rest := pem.Decode(have); block != nil; block, rest = pem.Decode(rest) {
		known[string(block.Bytes)] = true
	}
	added := bytes.Clone(have)
	if len(added) > 0 && added[len(added)-1] != '\n' {
		added = append(added, '\n')
	}
	for block, rest := pem.Decode(authorities); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" && !known[string(block.Bytes)] {
			known[string(block.Bytes)] = true
			added = append(added, pem.EncodeToMemory(block)...)
		}
	}
	if err := os.MkdirAll(filepath.Dir(bundle), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(bundle, added, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(javaStore, keystore(added), 0o644); err != nil {
		return err
	}
	for name, value := range trusted {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}
