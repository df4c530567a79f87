package seal

import (
	"crypto/cipher"
	"fmt"
	"slices"
	"sync/atomic"
)

// A Keychain is a cipher.AEAD whose key can be replaced while it is used. It seals with its current key, and
// opens what that or a former one has sealed. It is safe for concurrent use.
type Keychain struct{ keys atomic.Pointer[[]sealingKey] }

// A sealingKey is a key with its cipher.
type sealingKey struct {
	key  [32]byte
	aead cipher.AEAD
}

// NewKeychain returns a Keychain with a current key and former ones.
func NewKeychain(current [32]byte, former ...[32]byte) *Keychain {
	k := &Keychain{}
	keys := []sealingKey{{current, New(current)}}
	for _, key := range former {
		keys = append(keys, sealingKey{key, New(key)})
	}
	k.keys.Store(&keys)
	return k
}

// Replace makes a key the current one. It must not be called concurrently.
func (k *Keychain) Replace(current [32]byte) {
	keys := slices.Concat([]sealingKey{{current, New(current)}}, *k.keys.Load())
	k.keys.Store(&keys)
}

// Current returns the current key.
func (k *Keychain) Current() [32]byte { return (*k.keys.Load())[0].key }

// NonceSize implements cipher.AEAD.
func (k *Keychain) NonceSize() int { return (*k.keys.Load())[0].aead.NonceSize() }

// Overhead implements cipher.AEAD.
func (k *Keychain) Overhead() int { return (*k.keys.Load())[0].aead.Overhead() }

// Seal implements cipher.AEAD.
func (k *Keychain) Seal(dst, nonce, plain, data []byte) []byte {
	return (*k.keys.Load())[0].aead.Seal(dst, nonce, plain, data)
}

// Open implements cipher.AEAD. The plain text never overlaps the box: a failed attempt would overwrite it.
func (k *Keychain) Open(dst, nonce, box, data []byte) (plain []byte, err error) {
	for _, key := range *k.keys.Load() {
		if plain, err = key.aead.Open(nil, nonce, box, data); err == nil {
			return append(dst, plain...), nil
		}
	}
	return nil, fmt.Errorf("open box: %w", err)
}

// Newest returns a cipher.AEAD that opens only what the current key has sealed.
func (k *Keychain) Newest() cipher.AEAD { return newest{k} }

type newest struct{ *Keychain }

// Open implements cipher.AEAD.
func (n newest) Open(dst, nonce, box, data []byte) ([]byte, error) {
	plain, err := (*n.keys.Load())[0].aead.Open(dst, nonce, box, data)
	if err != nil {
		return nil, fmt.Errorf("open box with the newest key: %w", err)
	}
	return plain, nil
}
