package e2b

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// A purpose is what a token is for.
type purpose string

const (
	accessPurpose  purpose = "e2b access token"         // a sandbox
	trafficPurpose purpose = "e2b traffic access token" // ports of a sandbox that are not public, and its contexts
	volumePurpose  purpose = "e2b volume token"         // the content of a volume
	uploadPurpose  purpose = "e2b template upload"      // an upload of files for a template
)

// tokens makes and checks the tokens of sandboxes, volumes and uploads.
type tokens struct {
	secret  func() [32]byte // the key with which tokens are made now
	keyring keyring
}

// mint returns the token for an object that the holder of a key gets. The token names the key and ends with it.
func (t *tokens) mint(p purpose, of string, key berth.KeyID) string {
	secret := t.secret()
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte(string(p) + "\x00" + of))
	if key == "" {
		return hex.EncodeToString(mac.Sum(nil))
	}
	mac.Write([]byte("\x00" + string(key)))
	return hex.EncodeToString(mac.Sum(nil)) + "." + string(key)
}

// give is mint for an answer, after which the key must be known.
func (t *tokens) give(p purpose, of string, key berth.KeyID) string {
	t.keyring.expect(key)
	return t.mint(p, of, key)
}

// minted reports whether mint has made a token, perhaps for a key that was deleted, and for which key.
func (t *tokens) minted(p purpose, of, token string) (key berth.KeyID, ok bool) {
	_, name, _ := strings.Cut(token, ".")
	key = berth.KeyID(name)
	return key, subtle.ConstantTimeCompare([]byte(token), []byte(t.mint(p, of, key))) == 1
}

// holder returns the key of the holder of a token. It reports false if the token is wrong or its key is not valid.
func (t *tokens) holder(ctx context.Context, p purpose, project berth.ProjectID, of, token string) (key berth.KeyID,
	ok bool, err error) {
	key, ok = t.minted(p, of, token)
	if !ok {
		return "", false, nil
	}
	for _, fresh := range []bool{false, true} { // the key may be newer than the cache
		valid, err := t.keyring.of(ctx, project, fresh)
		if err != nil {
			return "", false, err
		}
		if slices.Contains(valid, key) {
			return key, true, nil
		}
	}
	return "", false, nil
}

// signerOf returns the key whose access token of a sandbox has signed the URL of a file.
func (t *tokens) signerOf(ctx context.Context, project berth.ProjectID, id berth.ContainerID, method string,
	q url.Values) (key berth.KeyID, ok bool, err error) {
	valid, err := t.keyring.of(ctx, project, false)
	if err != nil {
		return "", false, err
	}
	given := []byte(q.Get("signature"))
	for _, key := range valid {
		if subtle.ConstantTimeCompare(given, []byte(sign(method, q, t.mint(accessPurpose, string(id), key)))) == 1 {
			return key, true, nil
		}
	}
	return "", false, nil
}

// bearer returns the key of a request with the access token of a sandbox, or false.
func (t *tokens) bearer(r *http.Request, project berth.ProjectID, id berth.ContainerID) (berth.KeyID, bool, error) {
	return t.holder(r.Context(), accessPurpose, project, string(id), r.Header.Get(tokenHeader))
}

// visitor is bearer for the traffic token.
func (t *tokens) visitor(r *http.Request, project berth.ProjectID, id berth.ContainerID) (berth.KeyID, bool, error) {
	return t.holder(r.Context(), trafficPurpose, project, string(id), r.Header.Get(trafficHeader))
}

// keysAge is how old the cached keys may be: a deleted key ends what it gave out after this time.
const keysAge = time.Second

// A keyring caches the keys of the store, because each request of the data plane needs them.
type keyring struct {
	keys exchange.Keys
	now  func() time.Time

	mu   sync.Mutex
	at   time.Time // when all was read
	all  []*berth.Key
	read bool
}

// expect makes sure that a key that exists is known, also one that is newer than the cache.
func (k *keyring) expect(key berth.KeyID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = k.read && (key == "" || slices.ContainsFunc(k.all, func(o *berth.Key) bool { return o.ID == key }))
}

// of returns the valid keys of a project. A server without keys has the empty one. fresh reads them from the store.
func (k *keyring) of(ctx context.Context, project berth.ProjectID, fresh bool) (valid []berth.KeyID,
	err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if age := now.Sub(k.at); fresh || !k.read || age < 0 || age >= keysAge {
		all, err := k.keys.ListKeys(ctx)
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
		k.at, k.all, k.read = now, all, true
	}
	if len(k.all) == 0 {
		return []berth.KeyID{""}, nil
	}
	for _, key := range k.all {
		if key.Project == project && !key.Expired(now.Unix()) && !key.Lost() {
			valid = append(valid, key.ID)
		}
	}
	return valid, nil
}
