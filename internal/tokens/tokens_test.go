package tokens

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"github.com/tiktoken-go/tokenizer/codec"
)

var update = flag.Bool("update", false, "write the vocabularies anew")

var encodings = map[string]struct {
	ours   func() *Encoding
	theirs *codec.Codec
	size   int
}{
	"cl100k_base": {Cl100k, codec.NewCl100kBase(), 100256},
	"o200k_base":  {O200k, codec.NewO200kBase(), 199998},
}

func TestVocabularies(t *testing.T) {
	for name, e := range encodings {
		words := make([]string, e.size)
		for id := range words {
			word, err := e.theirs.Decode([]uint{uint(id)})
			if err != nil {
				t.Fatalf("%s: token %d: %v", name, id, err)
			}
			words[id] = word
		}
		if *update {
			var plain []byte
			for _, word := range words {
				plain = append(binary.AppendUvarint(plain, uint64(len(word))), word...)
			}
			w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name+".zst", w.EncodeAll(plain, nil), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		ranks := e.ours().ranks
		if len(ranks) != len(words) {
			t.Errorf("%s: %d tokens, want %d", name, len(ranks), len(words))
		}
		for id, word := range words {
			if rank, ok := ranks[word]; !ok || rank != uint32(id) {
				t.Fatalf("%s: %q has rank %d, %t; want %d", name, word, rank, ok, id)
			}
		}
	}
}

// emptyLines matches a line of blanks between others. The other implementation does not give a newline
// back once \s* has taken it, as OpenAI's does: it finds two words in "\n \n".
var emptyLines = regexp.MustCompile(`[\r\n][\pZ\t\v\f\x{85}]+[\r\n]`)

// check compares the count of a text with another implementation's.
func check(t *testing.T, text string) {
	t.Helper()
	text = strings.ReplaceAll(text, "\x7f", "") // the other implementation skips it
	for emptyLines.MatchString(text) {
		text = emptyLines.ReplaceAllString(text, "\n")
	}
	for name, e := range encodings {
		want, err := e.theirs.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.ours().Count(text); got != want {
			_, words, _ := e.theirs.Encode(text)
			t.Errorf("%s: %.200q has %d tokens, want %d: %.400q", name, text, got, want, words)
		}
	}
}

func TestCount(t *testing.T) {
	for _, text := range []string{
		"", "a", "hello world", "it's WE'LL They'RE o'ſ 'd' 'L", "tiktoken is great!", "お誕生日おめでとう",
		"  two  spaces \n\n\tand\r\n lines  ", "1234567 ½ Ⅷ٣٤٥٦", "http://example.com//path/\n/x",
		"e\u0301a\u0301 \u0301x \u0301\u0301A", "ǅǅa ʰAʰ aʰA 日A日a", "\u00a0\u2003x\u3000\n\u3000y", "🙂🙂 👩‍👩‍👧 \ufffd", " ", "\n", " \n x", "x \u0085 y",
		strings.Repeat("a", 3000), strings.Repeat("日本", 500), strings.Repeat("!?", 400),
	} {
		check(t, text)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(len(pages), err)
	}
	for _, page := range append(pages, "words.go", "tokens_test.go") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if text = text[:min(len(text), 20000)]; bytes.IndexByte(text, 0) < 0 {
			check(t, strings.ToValidUTF8(string(text), ""))
		}
	}
}

func TestEmptyLines(t *testing.T) {
	for text, want := range map[string]int{"\n \n": len("\n \n"), "x \n\t\r\n  y": 1, " \u2028\n\u00a0\n\t": 8, "\x7fa": 2} {
		if got := nextO200k(text); got != want {
			t.Errorf("the first word of %q has %d bytes, want %d", text, got, want)
		}
	}
	for name, e := range encodings {
		if got := e.ours().Count("\n \n"); got != 1 {
			t.Errorf("%s: a line of one space has %d tokens, want 1", name, got)
		}
	}
}

// Texts of runes that meet at the borders of the expressions' classes.
func TestCountRandom(t *testing.T) {
	const runes = "aaAbsStTdD''''rReEvVlLmM  \t\n\r\v\f\u0085\u00a0\u2028\u3000" +
		"//!?.01²½Ⅷ٣ǅʰª日本あ\u0301\u0903\u20ddſKß_🙂\ufffd\u200d\u180e\ufeff"
	all := []rune(runes)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		text := make([]rune, 1+random.IntN(12))
		for i := range text {
			text[i] = all[random.IntN(len(all))]
		}
		check(t, string(text))
		if t.Failed() {
			return
		}
	}
	for range 3000 { // runes of all planes
		text := make([]rune, 1+random.IntN(20))
		for i := range text {
			for text[i] = rune(random.IntN(0x3000)); !utf8.ValidRune(text[i]); {
				text[i] = rune(random.IntN(utf8.MaxRune))
			}
		}
		check(t, string(text))
	}
}

// Each byte that is not UTF-8 is a token of some kind: counting ends.
func TestCountInvalid(t *testing.T) {
	for _, text := range []string{"\xff", "a\xffb\xc3", "\xf0\x9f\x99 \xe2\x82", strings.Repeat("\x80", 1000)} {
		for name, e := range encodings {
			if got := e.ours().Count(text); got < 1 || got > len(text) {
				t.Errorf("%s: %q has %d tokens", name, text, got)
			}
		}
	}
}

func BenchmarkCount(b *testing.B) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		b.Fatal(err)
	}
	e := encodings["o200k_base"]
	e.ours()
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			e.ours().Count(string(text))
		}
	})
	b.Run("theirs", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			e.theirs.Count(string(text))
		}
	})
}
