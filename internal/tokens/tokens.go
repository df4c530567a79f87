// Package tokens counts the tokens of a text with OpenAI's vocabularies.
package tokens

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// The tokens of a vocabulary in the order of their ranks, each behind its length as an unsigned
// varint, compressed. As Go maps they would make the program 7 MB larger.
var (
	//go:embed cl100k_base.zst
	cl100kFile []byte
	//go:embed o200k_base.zst
	o200kFile []byte
)

// An Encoding is a vocabulary, and the rule by which a text is divided before its bytes are merged.
type Encoding struct {
	ranks map[string]uint32
	next  func(text string) int // the length of the first word
}

// Cl100k returns cl100k_base, the encoding of OpenAI's embedding models. The first call unpacks
// it.
var Cl100k = sync.OnceValue(func() *Encoding { return load(cl100kFile, nextCl100k) })

// O200k returns o200k_base, the encoding of OpenAI's models since GPT-4o. The first call unpacks
// it; it takes 8 MB of memory.
var O200k = sync.OnceValue(func() *Encoding { return load(o200kFile, nextO200k) })

func load(file []byte, next func(string) int) *Encoding {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(fmt.Sprintf("tokens: embedded vocabulary: %v", err))
	}
	defer r.Close()
	plain, err := r.DecodeAll(file, nil)
	if err != nil {
		panic(fmt.Sprintf("tokens: embedded vocabulary: %v", err))
	}
	var words []string
	for text := string(plain); text != ""; {
		n, skip := binary.Uvarint(plain[len(plain)-len(text):])
		words = append(words, text[skip:skip+int(n)])
		text = text[skip+int(n):]
	}
	ranks := make(map[string]uint32, len(words))
	for rank, word := range words {
		ranks[word] = uint32(rank)
	}
	return &Encoding{ranks: ranks, next: next}
}

// Count returns the number of tokens in a text. Names of special tokens count as text.
func (e *Encoding) Count(text string) int {
	count := 0
	for text != "" {
		n := e.next(text)
		if _, ok := e.ranks[text[:n]]; ok {
			count++
		} else {
			count += e.merge(text[:n])
		}
		text = text[n:]
	}
	return count
}
