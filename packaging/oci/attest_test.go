package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// writeKey writes a private key as PEM.
func writeKey(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func layerText(t *testing.T, img v1.Image, digest v1.Hash) []byte {
	t.Helper()
	layer, err := img.LayerByDigest(digest)
	if err != nil {
		t.Fatal(err)
	}
	r, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Each image of a pushed index has a provenance and a bill of materials that name its digest, and cosign's signature of
// the index verifies.
func TestAttestations(t *testing.T) {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	bom := filepath.Join(t.TempDir(), "berth.cdx.json")
	if err := os.WriteFile(bom, []byte(`{"bomFormat": "CycloneDX"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	args, roots := programs(t, "amd64", "arm64")
	tag := strings.TrimPrefix(srv.URL, "http://") + "/team/berth:1.2.3"
	if err := run(options{tag: tag, push: true, roots: roots, programs: args, boms: map[string]string{"amd64": bom},
		source: "https://example.com/berth@c0ffee", key: writeKey(t, key)}); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range manifest.Manifests[2:] {
		of := manifest.Manifests[i].Digest
		if m.Annotations["vnd.docker.reference.type"] != "attestation-manifest" ||
			m.Annotations["vnd.docker.reference.digest"] != of.String() || m.Platform.OS != "unknown" {
			t.Errorf("manifest %d: got %+v", i, m)
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		said, err := img.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if want := 2 - i; len(said.Layers) != want { // only amd64 has a bill of materials
			t.Fatalf("manifest %d: got %d statements, want %d", i, len(said.Layers), want)
		}
		for j, want := range []string{provenanceType, bomType}[:len(said.Layers)] {
			var s struct {
				statement
				Predicate json.RawMessage `json:"predicate"`
			}
			if err := json.Unmarshal(layerText(t, img, said.Layers[j].Digest), &s); err != nil {
				t.Fatal(err)
			}
			if s.PredicateType != want || said.Layers[j].Annotations["in-toto.io/predicate-type"] != want ||
				len(s.Subject) != 1 || s.Subject[0].Digest["sha256"] != of.Hex {
				t.Errorf("manifest %d: got the statement %+v, want a %s of %s", i, s, want, of)
			}
			if text := map[string]string{provenanceType: `"gitCommit":"c0ffee"`, bomType: "CycloneDX"}[want]; !strings.Contains(string(s.Predicate), text) {
				t.Errorf("manifest %d: %s does not contain %s", i, s.Predicate, text)
			}
		}
	}

	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := remote.Image(ref.Context().Tag("sha256-" + digest.Hex + ".sig"))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := signed.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	payload := layerText(t, signed, parts.Layers[0].Digest)
	sum := sha256.Sum256(payload)
	sig, err := base64.StdEncoding.DecodeString(parts.Layers[0].Annotations["dev.cosignproject.cosign/signature"])
	if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, sum[:], sig) || !strings.Contains(string(payload), digest.String()) {
		t.Errorf("the signature of %s does not verify: %v", payload, err)
	}
}

func TestAttestationErrors(t *testing.T) {
	args, roots := programs(t, "amd64")
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]options{
		"want ECDSA":          {key: writeKey(t, other)},
		"no private key":      {key: garbage},
		"is not URL@COMMIT":   {source: "https://example.com"},
		"garbage is not JSON": {boms: map[string]string{"amd64": garbage}},
	} {
		o.tag, o.out, o.roots, o.programs = "berth:latest", filepath.Join(t.TempDir(), "out"), roots, args
		if err := run(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
