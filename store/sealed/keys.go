// Package sealed seals what a database stores and erases what is deleted from it.
//
// Each response, container, uploaded file and object has a key of its own. What
// clients have written is sealed under it: whatever a database, a file system or a
// disk makes of the content, in logs, in free pages, in blocks returned to the file
// system, is noise without the key. Deleting the row destroys the key, so an earlier
// disk image is unreadable. Ids, times, sizes, kinds, owners, and the names of API keys
// are in the clear.
//
// A driver saves boxes in the place of content, and with each row the number of its
// key:
//
//  1. Open the Keys; save their Mark in a new database, Check it in an old one.
//  2. Seal rows with the methods of Key, and open them with those of Opener.
//  3. Delete rows and list their keys as doomed in one transaction, then call
//     Eraser.Erase.
//
// storetest.Sealing tests it. The form of boxes must not change: databases have them.
package sealed

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store"
)

// Keys are the keys of a database's rows. They are safe for concurrent use.
type Keys struct {
	path string
	ring *keyring.Ring
	root [32]byte
}

// OpenKeys opens the file of keys at path, which it creates if there is none. root is
// the server's key, without which the file is useless.
func OpenKeys(path string, root [32]byte) (*Keys, error) {
	ring, err := keyring.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	return &Keys{path: path, ring: ring, root: root}, nil
}

// Close closes the file of keys.
func (k *Keys) Close() error {
	if err := k.ring.Close(); err != nil {
		return fmt.Errorf("close keys: %w", err)
	}
	return nil
}

// Mark returns what identifies the file of keys and the server's key. It is no secret.
func (k *Keys) Mark() []byte {
	id := k.ring.ID()
	mark := k.derive("ring", id[:])
	return mark[:]
}

// Check returns an error unless mark is that of k.
func (k *Keys) Check(mark []byte) error {
	if hmac.Equal(mark, k.Mark()) {
		return nil
	}
	return fmt.Errorf("its content was sealed with other keys than those in %s and of this server; restore the database, the file of keys and the server's key from one copy", k.path)
}

func (k *Keys) derive(what string, from ...[]byte) (sum [32]byte) {
	h := hmac.New(sha256.New, k.root[:])
	h.Write([]byte("berth store " + what + "\x00"))
	for _, b := range from {
		h.Write(b)
	}
	h.Sum(sum[:0])
	return sum
}

// New returns the key of a new row. It is durable already.
func (k *Keys) New() (Key, error) {
	n, part, err := k.ring.New()
	if errors.Is(err, os.ErrClosed) {
		return Key{}, store.ErrClosed
	}
	if err != nil {
		return Key{}, fmt.Errorf("new key: %w", err)
	}
	return k.row(n, part), nil
}

// Get returns a key by its number. It returns store.ErrNotFound if the key is erased:
// its row is deleted, or is being deleted.
func (k *Keys) Get(number int64) (Key, error) {
	if number == 0 {
		return Key{}, nil
	}
	part, err := k.ring.Get(number)
	if errors.Is(err, keyring.ErrErased) {
		return Key{}, store.ErrNotFound
	}
	if err != nil {
		return Key{}, fmt.Errorf("get key: %w", err)
	}
	return k.row(number, part), nil
}

func (k *Keys) row(n int64, part keyring.Key) Key {
	secret := k.derive("row", binary.BigEndian.AppendUint64(nil, uint64(n)), part[:])
	return Key{n, secret, seal.New(secret)}
}

// HideName returns what stands for the name of a container in the database, so that
// containers can be found by their names. It returns "" for "".
func (k *Keys) HideName(p berth.ProjectID, name string) string {
	if name == "" {
		return ""
	}
	sum := k.derive("container name", []byte(p), []byte{0}, []byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// A Key seals a row and what belongs to it. The zero value is the key of rows in the
// clear, which versions before sealing have written.
type Key struct {
	number int64
	secret [32]byte
	aead   cipher.AEAD
}

// Number returns the number by which Keys.Get returns the key again.
func (k Key) Number() int64 { return k.number }

// A box is a byte that no JSON begins with, the number of its key, and what seal.New
// makes of the content, bound to both and to the kind of content. What does not begin
// with that byte is in the clear.
const (
	boxMark   = 1
	boxHeader = 1 + 8
)

// A content is a kind of what is in boxes.
type content string

const (
	contentRequest content = "request"
	contentInput   content = "input"
	contentBody    content = "body" // of anything
	contentOutput  content = "output"
	contentEvent   content = "event"
	contentPath    content = "path" // of a file in a container
)

// seal returns a box with plain in it.
func (k Key) seal(c content, plain []byte) []byte {
	if k.number == 0 {
		return plain
	}
	box := make([]byte, 0, boxHeader+len(plain)+k.aead.Overhead())
	box = binary.BigEndian.AppendUint64(append(box, boxMark), uint64(k.number))
	return k.aead.Seal(box, nil, plain, append([]byte(c), box...))
}

// keyOf returns the number of a box's key.
func keyOf(box []byte) int64 {
	if len(box) < boxHeader || box[0] != boxMark {
		return 0
	}
	return int64(binary.BigEndian.Uint64(box[1:]))
}
