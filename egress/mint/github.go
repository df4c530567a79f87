package mint

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// An App is an installation of a GitHub App.
type App struct {
	ID, Installation string
	Key              string // RSA, in PEM
	URL              string // of the API, such as https://api.github.com
	Repositories     []string
	Permissions      map[string]string
}

const (
	// GitHub refuses claims that are made in the future or live for more than ten minutes.
	claimBefore = time.Minute
	claimLife   = 9 * time.Minute

	maxAnswer = 1 << 20
)

// ParseKey parses the key of an App.
func ParseKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("mint: the key must be in PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("mint: the key must be an RSA key")
	}
	return key, nil
}

// claim returns the token by which the App authenticates.
func (a *App) claim(now time.Time) (string, error) {
	key, err := ParseKey(a.Key)
	if err != nil {
		return "", err
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", errors.New("mint: the key cannot sign")
	}
	claim, err := jwt.Signed(s).Claims(jwt.Claims{Issuer: a.ID, IssuedAt: jwt.NewNumericDate(now.Add(-claimBefore)),
		Expiry: jwt.NewNumericDate(now.Add(claimLife))}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign the claim of a GitHub App: %w", err)
	}
	return claim, nil
}

func (a *App) fetch(ctx context.Context, c *http.Client, now time.Time) (Token, error) {
	claim, err := a.claim(now)
	if err != nil {
		return Token{}, &Error{Refused: true, Reason: "the key of the GitHub App cannot sign"}
	}
	wanted, err := json.Marshal(struct {
		Repositories []string          `json:"repositories,omitempty"`
		Permissions  map[string]string `json:"permissions,omitempty"`
	}{a.Repositories, a.Permissions})
	if err != nil {
		return Token{}, errAway
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		a.URL+"/app/installations/"+url.PathEscape(a.Installation)+"/access_tokens", bytes.NewReader(wanted))
	if err != nil {
		return Token{}, errAway
	}
	r.Header = http.Header{"Authorization": {"Bearer " + claim}, "Accept": {"application/vnd.github+json"},
		"Content-Type": {"application/json"}, "X-Github-Api-Version": {"2022-11-28"}, "User-Agent": {"berth"}}
	resp, err := c.Do(r)
	if err != nil {
		return Token{}, errAway
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil || resp.StatusCode >= http.StatusInternalServerError ||
		resp.StatusCode == http.StatusTooManyRequests:
		return Token{}, errAway
	case resp.StatusCode != http.StatusCreated:
		return Token{}, refused(resp.StatusCode)
	}
	var answer struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Token{}, errAway
	}
	return Token{Value: answer.Token, Expires: answer.Expires}, nil
}
