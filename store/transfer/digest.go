package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// A Digest identifies the rows of a table, whatever their order: the sum of the SHA-256 of all
// rows, modulo 2^256. The zero Digest is that of an empty table.
type Digest [4]uint64

// String returns the first digits of the digest, which are enough to compare.
func (d Digest) String() string { return fmt.Sprintf("%016x", d[3]) }

// add adds a row.
func (d *Digest) add(columns []Column, row Row) error {
	h := sha256.New()
	var head [9]byte
	for i, v := range row {
		var content []byte
		switch v := v.(type) {
		case nil:
			head[0] = 'n'
			binary.BigEndian.PutUint64(head[1:], 0)
		case int64:
			head[0] = 'i'
			binary.BigEndian.PutUint64(head[1:], uint64(v))
		case string:
			head[0], content = 't', []byte(v)
			binary.BigEndian.PutUint64(head[1:], uint64(len(v)))
		case []byte:
			head[0], content = 'b', v
			binary.BigEndian.PutUint64(head[1:], uint64(len(v)))
		default:
			return fmt.Errorf("column %s has a value of type %T", columns[i].Name, v)
		}
		h.Write(head[:])
		h.Write(content)
	}
	sum := h.Sum(nil)
	var carry uint64
	for i := range d {
		d[i], carry = bits.Add64(d[i], binary.LittleEndian.Uint64(sum[8*i:]), carry)
	}
	return nil
}
