package egress

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/egress/sign"
)

// maxHashed bounds a body whose hash the gate computes: the client has sent none.
const maxHashed = 8 << 20

// A signer signs requests as the last step before they are sent.
type signer struct {
	next     http.RoundTripper
	crossing *crossing
	keys     []Secret
}

// signing returns a transport that signs requests with the keys of the host.
func (f *forwarder) signing(next http.RoundTripper) http.RoundTripper {
	if len(f.fills.keys) == 0 {
		return next
	}
	return signer{next, f.crossing, f.fills.keys}
}

// RoundTrip implements http.RoundTripper.
func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, key := range s.keys {
		if !names(r, key.Placeholder) {
			continue
		}
		if err := s.sign(r, key); err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, err
		}
		break
	}
	resp, err := s.next.RoundTrip(r)
	if errors.Is(err, sign.ErrChunks) {
		err = refusal(err.Error())
	}
	return resp, err
}

// names reports whether a request names a key in its signature.
func names(r *http.Request, placeholder string) bool {
	for _, value := range r.Header["Authorization"] {
		if strings.Contains(value, placeholder) {
			return true
		}
	}
	query, err := url.QueryUnescape(r.URL.RawQuery)
	return strings.Contains(query, placeholder) || err != nil && strings.Contains(r.URL.RawQuery, placeholder)
}

// sign replaces the signature of a request. The host that it signs is the allowed one, whatever the request says.
func (s signer) sign(r *http.Request, key Secret) error {
	claim, err := sign.Find(r)
	if err != nil {
		return refusal(err.Error())
	}
	if claim.ID != key.Placeholder {
		return refusal("the id of the access key is not the placeholder of a secret")
	}
	target := s.crossing.target
	at := net.JoinHostPort(target.Host, strconv.Itoa(target.Port))
	if target.Port == 443 && r.URL.Scheme == "https" || target.Port == 80 && r.URL.Scheme == "http" {
		at = target.Host
	}
	if r.Host != "" {
		r.Host = at
	}
	payload, err := claim.Payload(r)
	if err != nil {
		return refusal(err.Error())
	}
	switch {
	case payload.Chunks && r.Body != nil:
		body := r.Body
		release, err := s.crossing.gate.holdLarge(r.Context()) // a chunk is held in memory
		if err != nil {
			return err
		}
		r.Body = &heldBody{body, body, release}
	case payload.Hash == "":
		if payload.Hash, err = s.crossing.gate.hashBody(r); err != nil {
			return err
		}
	}
	if err := key.Sign.Sign(r.Context(), r, claim, payload, time.Now()); err != nil {
		return refusal(err.Error())
	}
	s.crossing.used[key.Name] = true
	return nil
}

// hashBody holds the body of a request in memory and returns its hash.
func (g *Gate) hashBody(r *http.Request) (string, error) {
	body := &heldBody{Closer: r.Body, release: func() {}}
	whole, err := io.ReadAll(io.LimitReader(r.Body, smallBody+1))
	if err == nil && len(whole) > smallBody {
		if body.release, err = g.holdLarge(r.Context()); err == nil {
			var more []byte
			more, err = io.ReadAll(io.LimitReader(r.Body, maxHashed+1-int64(len(whole))))
			whole = append(whole, more...)
		}
	}
	if err == nil && len(whole) > maxHashed {
		err = refusal("the body of a signed request has more than 8 MiB, so the client must send its hash in " +
			"x-amz-content-sha256")
	}
	body.Reader = bytes.NewReader(whole)
	r.Body, r.ContentLength = body, int64(len(whole))
	if err != nil {
		return "", err
	}
	r.Header.Del("Transfer-Encoding")
	r.TransferEncoding = nil
	hash := sha256.Sum256(whole)
	return hex.EncodeToString(hash[:]), nil
}

// keyMask returns the mask for what hosts receive of access keys: the id and the token of a session. Alone they open
// nothing, so only errors, which are short, are searched for them, and downloads pass as they are.
func (g *Gate) keyMask() *mask {
	g.masked.keys.once.Do(func() {
		var sent []Secret
		for _, s := range g.Secrets {
			if s.Sign != nil {
				sent = append(sent, Secret{Name: s.Name, Value: s.Sign.ID, Placeholder: s.Placeholder},
					Secret{Name: s.Name, Value: s.Sign.Session, Placeholder: s.Placeholder})
			}
		}
		g.masked.keys.mask = newMask(sent)
	})
	return g.masked.keys.mask
}

// A lowerWriter writes the names of an object's metadata in lower case, as S3 does: clients take them as they are.
type lowerWriter struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w lowerWriter) WriteHeader(status int) {
	h := w.Header()
	for name, values := range h {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-meta-") && lower != name {
			delete(h, name)
			h[lower] = values
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap supports http.ResponseController.
func (w lowerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
