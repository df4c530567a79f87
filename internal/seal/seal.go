// Package seal makes boxes that only this server can open.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
)

// New returns AES-256-GCM under the key, which makes its nonces itself: Seal(nil,
// nil, plain, bound) returns a box, and Open(nil, nil, box, bound) its content if
// it was bound to the same. It is safe for concurrent use.
func New(key [32]byte) cipher.AEAD {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has GCM's block size
	}
	return aead
}
