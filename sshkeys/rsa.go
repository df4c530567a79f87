package sshkeys

import (
	"crypto/rsa"

	"golang.org/x/crypto/ssh"
)

// rsaBits returns the size of an RSA key, or 0 for another key.
func rsaBits(key ssh.PublicKey) int {
	if c, ok := key.(ssh.CryptoPublicKey); ok {
		if k, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok {
			return k.N.BitLen()
		}
	}
	return 0
}
