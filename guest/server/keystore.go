package server

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"strconv"
	"time"
	"unicode/utf16"
)

// keystorePassword is the password of Java's own stores of authorities. It protects no
// secret.
const keystorePassword = "changeit"

// keystore returns the certificates of a PEM bundle as a JKS file, which every Java reads
// and which can be written without a library.
func keystore(bundle []byte) []byte {
	const (
		magic, version = 0xfeedfeed, 2
		trustedEntry   = 2
	)
	var body []byte
	count := uint32(0)
	made := uint64(time.Now().UnixMilli())
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		count++
		body = binary.BigEndian.AppendUint32(body, trustedEntry)
		body = appendText(body, "berth-"+strconv.Itoa(int(count)))
		body = binary.BigEndian.AppendUint64(body, made)
		body = appendText(body, "X.509")
		body = binary.BigEndian.AppendUint32(body, uint32(len(block.Bytes)))
		body = append(body, block.Bytes...)
	}
	store := binary.BigEndian.AppendUint32(nil, magic)
	store = binary.BigEndian.AppendUint32(store, version)
	store = binary.BigEndian.AppendUint32(store, count)
	store = append(store, body...)
	digest := keystoreDigest(store)
	return append(store, digest[:]...)
}

// keystoreDigest returns the digest at the end of a JKS file.
func keystoreDigest(store []byte) [sha1.Size]byte {
	var salted []byte
	for _, u := range utf16.Encode([]rune(keystorePassword)) {
		salted = binary.BigEndian.AppendUint16(salted, u)
	}
	salted = append(salted, "Mighty Aphrodite"...) // by the format
	return sha1.Sum(append(salted, store...))
}

// appendText appends a text in ASCII after its length.
func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}
