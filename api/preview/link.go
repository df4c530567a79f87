package preview

import (
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/berth-run/berth"
)

// A Link gives access to one port to every client that has it, until it expires. It becomes
// invalid earlier if the API key that created it does.
type Link struct {
	Project   berth.ProjectID   `json:"p"`
	Container berth.ContainerID `json:"c"`
	Port      int               `json:"n"`
	ExpiresAt int64             `json:"e"` // Unix seconds
	Key       []byte            `json:"k"` // the SHA-256 of the API key; empty without keys
}

// maxLink is the maximum length of a sealed link in bytes.
const maxLink = 1024

var (
	errLink = errors.New("not a link of this server")
	bound   = []byte("container.port")
)

// Seal encrypts the link for use in a URL. Only this server can create or read it.
func (l Link) Seal(box cipher.AEAD) string {
	plain, _ := json.Marshal(l) // strings and numbers always marshal
	return base64.RawURLEncoding.EncodeToString(box.Seal(nil, nil, plain, bound))
}

// Open decrypts a link. It returns an error if the link has expired by now.
func Open(box cipher.AEAD, word string, now time.Time) (Link, error) {
	var l Link
	if len(word) > maxLink {
		return l, errLink
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(word)
	if err != nil {
		return l, errLink
	}
	plain, err := box.Open(nil, nil, sealed, bound)
	if err != nil || json.Unmarshal(plain, &l) != nil || l.ExpiresAt <= now.Unix() {
		return Link{}, errLink
	}
	return l, nil
}
