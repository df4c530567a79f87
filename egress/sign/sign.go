// Package sign makes the signatures of requests to AWS, and to services that use its scheme (SigV4), anew. A sandbox
// signs with a placeholder in place of the id of an access key, and with any secret. The gate signs what it sends
// with the true key.
package sign

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// A Key is an access key with the regions and services for which it signs.
type Key struct {
	ID       string
	Secret   string
	Session  string `json:",omitempty"` // token of temporary credentials
	Regions  []string
	Services []string
}

const (
	algorithm  = "AWS4-HMAC-SHA256"
	timeFormat = "20060102T150405Z"

	hashField    = "X-Amz-Content-Sha256"
	dateField    = "X-Amz-Date"
	sessionField = "X-Amz-Security-Token"

	emptyHash    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	unsigned     = "UNSIGNED-PAYLOAD"
	unsignedEnd  = "STREAMING-UNSIGNED-PAYLOAD-TRAILER" // the body is in chunks that have no signatures
	signedChunks = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedEnd    = signedChunks + "-TRAILER"
)

// inQuery are the parameters of a presigned URL.
var inQuery = []string{"X-Amz-Algorithm", "X-Amz-Credential", dateField, "X-Amz-Expires", "X-Amz-SignedHeaders",
	"X-Amz-Signature", sessionField, hashField}

// unsent are the fields that the gate, or its transport, changes after the signature.
var unsent = []string{"Authorization", "Host", "Content-Length", "User-Agent", "Accept-Encoding", "Connection",
	"Keep-Alive", "Expect", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Amzn-Trace-Id", dateField,
	sessionField}

// A Claim is what a request says about its signature. The signature itself is not checked.
type Claim struct {
	ID              string // of the access key
	Region, Service string

	fields  []string  // that the client has signed
	expires time.Time // of a presigned URL; else zero
}

// presigned reports whether the signature is in the URL.
func (c *Claim) presigned() bool { return !c.expires.IsZero() }

// s3 reports whether the service encodes paths once and hashes bodies in its own way.
func (c *Claim) s3() bool { return c.Service == "s3" || strings.HasPrefix(c.Service, "s3-") }

var errOther = errors.New("only signatures of the form " + algorithm + " can be made anew")

// Find returns the claim of a request. Its errors are for the sandbox.
func Find(r *http.Request) (*Claim, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errors.New("the query of a signed request is malformed")
	}
	headers := r.Header["Authorization"]
	presigned := query.Has("X-Amz-Credential") || query.Has("X-Amz-Signature") || query.Has("X-Amz-Algorithm")
	switch {
	case len(headers) > 1 || presigned && len(headers) > 0:
		return nil, errors.New("a request has more than one signature")
	case presigned:
		return ofQuery(query)
	case len(headers) == 0 && query.Has("AWSAccessKeyId"):
		return nil, errOther
	case len(headers) == 0:
		return nil, errors.New("the id of an access key is not part of a signature")
	}
	scheme, rest, _ := strings.Cut(headers[0], " ")
	if scheme != algorithm {
		return nil, errOther
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if _, twice := parts[name]; !ok || twice {
			return nil, errors.New("the signature is malformed")
		}
		parts[name] = value
	}
	c := &Claim{fields: strings.Split(parts["SignedHeaders"], ";")}
	return c, c.readScope(parts["Credential"])
}

// ofQuery returns the claim of a presigned URL.
func ofQuery(query url.Values) (*Claim, error) {
	for _, name := range inQuery {
		if len(query[name]) > 1 {
			return nil, errors.New("a presigned URL has a parameter twice")
		}
	}
	if query.Get("X-Amz-Algorithm") != algorithm {
		return nil, errOther
	}
	made, err := time.Parse(timeFormat, query.Get(dateField))
	seconds, wrong := strconv.ParseUint(query.Get("X-Amz-Expires"), 10, 20) // at most 12 days
	if err != nil || wrong != nil {
		return nil, errors.New("a presigned URL has no date or expiry")
	}
	c := &Claim{fields: strings.Split(query.Get("X-Amz-SignedHeaders"), ";"),
		expires: made.Add(time.Duration(seconds) * time.Second)}
	return c, c.readScope(query.Get("X-Amz-Credential"))
}

var scopeWord = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// readScope reads "ID/date/region/service/aws4_request".
func (c *Claim) readScope(credential string) error {
	parts := strings.Split(credential, "/")
	n := len(parts)
	if n != 5 || parts[4] != "aws4_request" || !scopeWord.MatchString(parts[2]) || !scopeWord.MatchString(parts[3]) {
		return errors.New("the scope of the signature is malformed")
	}
	c.ID, c.Region, c.Service = parts[0], parts[2], parts[3]
	return nil
}

// A Payload is how the signature of a request covers its body.
type Payload struct {
	Hash   string // what the signature covers; "" if the hash of the body must be computed
	Chunks bool   // each chunk of the body has a signature
}

// Payload returns how the signature of a request covers its body.
func (c *Claim) Payload(r *http.Request) (Payload, error) {
	sent := r.Header[hashField]
	empty := r.Body == nil || r.Body == http.NoBody
	switch {
	case len(sent) > 1:
		return Payload{}, errors.New("a request has more than one hash of its body")
	case c.presigned() && c.s3():
		return Payload{Hash: unsigned}, nil
	case len(sent) == 0 && empty:
		return Payload{Hash: emptyHash}, nil
	case len(sent) == 0:
		return Payload{}, nil
	}
	switch hash := sent[0]; {
	case hash == unsigned || hash == unsignedEnd || isHash(hash):
		return Payload{Hash: hash}, nil
	case hash == signedChunks || hash == signedEnd:
		return Payload{Hash: hash, Chunks: true}, nil
	}
	return Payload{}, errors.New("the body is signed in a form that cannot be made anew: x-amz-content-sha256 must be " +
		"a hash, " + strings.Join([]string{unsigned, unsignedEnd, signedChunks, signedEnd}, ", "))
}

func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// Sign signs a request, which is sent as it is then. Its errors are for the sandbox.
func (k *Key) Sign(ctx context.Context, r *http.Request, c *Claim, p Payload, now time.Time) error {
	switch {
	case !slices.Contains(k.Services, c.Service):
		return fmt.Errorf("the secret does not sign for the service %q", c.Service)
	case !slices.Contains(k.Regions, c.Region):
		return fmt.Errorf("the secret does not sign for the region %q", c.Region)
	case c.presigned() && now.After(c.expires):
		return errors.New("the presigned URL has expired")
	}
	path, err := encodePath(r.URL.EscapedPath())
	if err != nil {
		return err
	}
	r.URL.Path, r.URL.RawPath = path.Path, path.RawPath
	query := r.URL.Query()
	for _, name := range inQuery {
		query.Del(name)
	}
	r.URL.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	r.URL.ForceQuery = false

	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	for name := range r.Header { // also in the spelling that some hosts read as the same field
		switch textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-")) {
		case "Authorization", dateField, sessionField:
			delete(r.Header, name)
		}
	}
	if c.s3() {
		r.Header.Set(hashField, p.Hash)
	}
	copied := &http.Request{Method: r.Method, Host: host, Header: c.signedFields(r.Header),
		URL: &url.URL{Scheme: r.URL.Scheme, Host: host, Path: path.Path, RawPath: path.RawPath,
			RawQuery: r.URL.RawQuery}}
	own := aws.Credentials{AccessKeyID: k.ID, SecretAccessKey: k.Secret, SessionToken: k.Session}
	err = v4.NewSigner().SignHTTP(ctx, own, copied, p.Hash, c.Service, c.Region, now,
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = c.s3() })
	if err != nil {
		return errors.New("the request cannot be signed")
	}
	for _, name := range []string{"Authorization", dateField, sessionField} {
		if v := copied.Header[name]; v != nil {
			r.Header[name] = v
		}
	}
	if p.Chunks && r.Body != nil {
		signature := copied.Header.Get("Authorization")
		signature = signature[strings.LastIndex(signature, "=")+1:]
		r.Body = k.newChunks(r.Body, c, now.UTC(), signature, p.Hash == signedEnd)
	}
	return nil
}

// signedFields returns the fields that the signature covers: what the client has signed, and what changes the meaning
// of a request.
func (c *Claim) signedFields(all http.Header) http.Header {
	signed := http.Header{}
	for name, values := range all {
		must := strings.HasPrefix(name, "X-Amz-") || name == "Content-Type" || name == "Content-Md5"
		if !slices.Contains(unsent, name) && (must || slices.Contains(c.fields, strings.ToLower(name))) {
			signed[name] = values
		}
	}
	return signed
}

// encodePath returns a path in the one spelling from which services compute the signature. A slash within a segment
// stays encoded.
func encodePath(escaped string) (*url.URL, error) {
	segments := strings.Split(escaped, "/")
	plain := make([]string, len(segments))
	for i, s := range segments {
		var err error
		if plain[i], err = url.PathUnescape(s); err != nil || plain[i] == "." || plain[i] == ".." {
			return nil, errors.New("the path of a signed request is not one that all hosts read in the same way")
		}
		segments[i] = strings.ReplaceAll(url.QueryEscape(plain[i]), "+", "%20")
	}
	if len(segments) < 2 || segments[0] != "" {
		return nil, errors.New("the path of a signed request is malformed")
	}
	return &url.URL{Path: strings.Join(plain, "/"), RawPath: strings.Join(segments, "/")}, nil
}

// signingKey returns the key for a day, a region and a service.
func (k *Key) signingKey(day string, c *Claim) []byte {
	key := []byte("AWS4" + k.Secret)
	for _, part := range []string{day, c.Region, c.Service, "aws4_request"} {
		key = sum(key, part)
	}
	return key
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
