package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A statement of in-toto says something about images by their digests:
// https://github.com/in-toto/attestation/tree/main/spec/v0.1.0. BuildKit writes this version, and scanners read it.
type statement struct {
	Type          string    `json:"_type"`
	PredicateType string    `json:"predicateType"`
	Subject       []subject `json:"subject"`
	Predicate     any       `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// A provenance is a predicate of SLSA, https://slsa.dev/spec/v1.0/provenance: what an image was built from.
type provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies,omitempty"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

type resource struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

const (
	bomType        = "https://cyclonedx.org/bom"
	provenanceType = "https://slsa.dev/provenance/v1"
	builder        = "https://github.com/berth-run/berth/tree/main/packaging/oci"
)

// provenanceOf returns the provenance of an image of an architecture. source is URL@COMMIT, or empty.
func provenanceOf(arch, source string) (provenance, error) {
	var p provenance
	p.BuildDefinition.BuildType = builder + "@v1"
	p.BuildDefinition.ExternalParameters = map[string]string{"platform": "linux/" + arch}
	p.RunDetails.Builder.ID = builder
	if source == "" {
		return p, nil
	}
	url, commit, ok := strings.Cut(source, "@")
	if !ok || url == "" || commit == "" {
		return p, fmt.Errorf("%q is not URL@COMMIT", source)
	}
	p.BuildDefinition.ExternalParameters["source"] = url
	p.BuildDefinition.ResolvedDependencies = []resource{{"git+" + url + "@" + commit,
		map[string]string{"gitCommit": commit}}}
	return p, nil
}

// attestations returns the manifest that goes beside an image in its index, as BuildKit writes it: one layer for the
// provenance, and one for the bill of materials in the file bom if there is one.
func attestations(img v1.Image, ref name.Tag, arch, bom, source string) (v1.Image, v1.Hash, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, v1.Hash{}, err
	}
	purl := fmt.Sprintf("pkg:docker/%s@%s?platform=linux%%2F%s", ref.Context().RepositoryStr(), ref.TagStr(), arch)
	of := []subject{{purl, map[string]string{digest.Algorithm: digest.Hex}}}
	p, err := provenanceOf(arch, source)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	statements := []statement{{PredicateType: provenanceType, Predicate: p}}
	if bom != "" {
		raw, err := os.ReadFile(bom)
		if err != nil {
			return nil, v1.Hash{}, err
		}
		if !json.Valid(raw) {
			return nil, v1.Hash{}, fmt.Errorf("%s is not JSON", bom)
		}
		statements = append(statements, statement{PredicateType: bomType, Predicate: json.RawMessage(raw)})
	}
	out := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, s := range statements {
		s.Type, s.Subject = "https://in-toto.io/Statement/v0.1", of
		raw, err := json.Marshal(s)
		if err != nil {
			return nil, v1.Hash{}, err
		}
		out, err = mutate.Append(out, mutate.Addendum{Layer: static.NewLayer(raw, "application/vnd.in-toto+json"),
			Annotations: map[string]string{"in-toto.io/predicate-type": s.PredicateType}})
		if err != nil {
			return nil, v1.Hash{}, err
		}
	}
	config, err := out.ConfigFile()
	if err != nil {
		return nil, v1.Hash{}, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "unknown", "unknown"
	out, err = mutate.ConfigFile(out, config)
	return out, digest, err
}

// signature returns the image with which cosign signs an index, and the tag where cosign looks for it. key is a PEM
// file with a private ECDSA key that is not encrypted.
func signature(index v1.ImageIndex, ref name.Tag, key string) (v1.Image, name.Tag, error) {
	digest, err := index.Digest()
	if err != nil {
		return nil, name.Tag{}, err
	}
	signer, err := readKey(key)
	if err != nil {
		return nil, name.Tag{}, fmt.Errorf("%s: %w", key, err)
	}
	var payload struct {
		Critical struct {
			Identity struct {
				Reference string `json:"docker-reference"`
			} `json:"identity"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
		Optional map[string]string `json:"optional"`
	}
	payload.Critical.Identity.Reference = ref.Context().Name()
	payload.Critical.Image.Digest = digest.String()
	payload.Critical.Type = "cosign container image signature"
	raw, err := json.Marshal(payload)
	if err != nil {
		return nil, name.Tag{}, err
	}
	sum := sha256.Sum256(raw)
	sig, err := signer.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return nil, name.Tag{}, err
	}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), mutate.Addendum{
		Layer:       static.NewLayer(raw, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)},
	})
	return img, ref.Context().Tag(digest.Algorithm + "-" + digest.Hex + ".sig"), err
}

// readKey reads a private ECDSA key, as openssl ecparam -genkey and openssl genpkey write it.
func readKey(file string) (*ecdsa.PrivateKey, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			if key, ok := key.(*ecdsa.PrivateKey); ok {
				return key, nil
			}
			return nil, fmt.Errorf("the key is a %T, want ECDSA", key)
		}
	}
	return nil, errors.New("it has no private key in PEM that is not encrypted")
}
