// Package seal encrypts data at rest with authenticated encryption.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
)

// New returns AES-256-GCM with random nonces: Seal(nil, nil, plain, data) returns a box, and Open(nil,
// nil, box, data) its content if data is the same. It is safe for concurrent use.
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
