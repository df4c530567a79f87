package sealed

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/internal/seal"
)

// A generation is a ring and the server's key that its keys need.
//
// In the first form, the secret of a row is derived from the server's key and the key in the ring. Such a
// secret cannot be sealed with another server's key. In the second form, which a rotation makes, the ring
// has the secret itself, encrypted with a pad that is derived from the server's key and the number.
// A number is never used again, so a pad encrypts one secret.
type generation struct {
	ring   Ring
	root   [32]byte
	sealed bool // in the second form
	strict bool // no row may be unsealed

	inUse sync.RWMutex // held for reading while a key is read or made
}

func (g *generation) derive(what string, from ...[]byte) (sum [32]byte) {
	h := hmac.New(sha256.New, g.root[:])
	h.Write([]byte("berth store " + what + "\x00"))
	for _, b := range from {
		h.Write(b)
	}
	h.Sum(sum[:0])
	return sum
}

// mark returns what Keys.Mark says.
func (g *generation) mark() []byte {
	id := g.ring.ID()
	what := "ring"
	if g.sealed {
		what = "sealed ring"
	}
	if g.strict {
		what = "strict " + what
	}
	mark := g.derive(what, id[:])
	return mark[:]
}

// matching returns g in the form that a mark says, if the mark is one of g's.
func (g *generation) matching(mark []byte) (*generation, bool) {
	for _, sealed := range []bool{false, true} {
		for _, strict := range []bool{false, true} {
			one := &generation{ring: g.ring, root: g.root, sealed: sealed, strict: strict}
			if hmac.Equal(mark, one.mark()) {
				return one, true
			}
		}
	}
	return nil, false
}

// row returns the key of a row, of which the ring has a part.
func (g *generation) row(n int64, part [32]byte) Key {
	secret := g.secret(n, part)
	return Key{n, secret, seal.New(secret)}
}

func (g *generation) secret(n int64, part [32]byte) [32]byte {
	number := binary.BigEndian.AppendUint64(nil, uint64(n))
	if !g.sealed {
		return g.derive("row", number, part[:])
	}
	pad := g.derive("sealed row", number)
	subtle.XORBytes(pad[:], pad[:], part[:])
	return pad
}

// reseal returns a key of the ring as another generation's ring has it.
func (g *generation) reseal(next *generation, n int64, part [32]byte) [32]byte {
	secret := g.secret(n, part)
	return next.secret(n, secret) // the pad encrypts as it decrypts
}

// fileTag returns the tag of the file of a ring in the second form. It tells apart the files before and
// after a rotation.
func (g *generation) fileTag() keyring.Tag {
	if !g.sealed {
		return keyring.Tag{}
	}
	id := g.ring.ID()
	return g.derive("ring file", id[:])
}

func (g *generation) hideName(p berth.ProjectID, name string) string {
	if name == "" {
		return ""
	}
	sum := g.derive("container name", []byte(p), []byte{0}, []byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
