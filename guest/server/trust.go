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

// javaStore is the name of the same for Java, which does not read PEM.
const javaStore = "berth.jks"

// trusted returns the environment variables that make programs with authorities of their own use
// those in a directory.
func trusted(bundle, javaStore string) map[string]string {
	return map[string]string{
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
}

// trust adds authorities to those of the sandbox. A guest that may not write the system's files
// writes copies into dir, which the variables point to.
func trust(authorities []byte, dir string) error {
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
	to := filepath.Dir(bundle)
	err = writeAuthorities(to, added)
	if errors.Is(err, fs.ErrPermission) {
		to = dir
		err = writeAuthorities(to, added)
	}
	if err != nil {
		return err
	}
	for name, value := range trusted(filepath.Join(to, filepath.Base(bundle)), filepath.Join(to, javaStore)) {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeAuthorities writes the bundle and Java's store into a directory.
func writeAuthorities(dir string, added []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, filepath.Base(bundle)), added, 0o644),
		os.WriteFile(filepath.Join(dir, javaStore), keystore(added), 0o644))
}
