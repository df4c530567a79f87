package vectorstore

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/tokens"
)

// A piece is the smallest part of a text that split moves: a line, several short ones, or a
// part of a long one.
type piece struct {
	text   string
	tokens int
}

// Bounds of a piece in bytes. Lines are joined up to minPiece: a text may have millions of
// empty ones.
const (
	minPiece = 64
	maxPiece = 240
)

// split divides a text into chunks of at most MaxChunkSizeTokens. Each repeats the end of the
// one before, up to ChunkOverlapTokens. It counts tokens with cl100k_base, the
// vocabulary of OpenAI's embedding models, and ends chunks at ends of lines or words.
func split(text string, by berth.StaticChunking) []string {
	pieces := pieces(text)
	var chunks []string
	for first := 0; first < len(pieces); {
		tokens, end := 0, first
		for end < len(pieces) && (end == first || tokens+pieces[end].tokens <= by.MaxChunkSizeTokens) {
			tokens += pieces[end].tokens
			end++
		}
		var b strings.Builder
		for _, p := range pieces[first:end] {
			b.WriteString(p.text)
		}
		if chunk := strings.TrimSpace(b.String()); chunk != "" {
			chunks = append(chunks, chunk)
		}
		if end == len(pieces) {
			break
		}
		next, overlap := end, 0
		for next-1 > first && overlap+pieces[next-1].tokens <= by.ChunkOverlapTokens {
			next--
			overlap += pieces[next].tokens
		}
		first = next
	}
	return chunks
}

func pieces(text string) []piece {
	var out []piece
	for len(text) > 0 {
		line := shortLines(text)
		text = text[len(line):]
		for len(line) > 0 {
			n := len(line)
			if n > maxPiece {
				if n = strings.LastIndexAny(line[:maxPiece], " \t") + 1; n == 0 {
					for n = maxPiece; !utf8.RuneStart(line[n]); n-- {
					}
				}
			}
			out = append(out, piece{line[:n], tokens.Cl100k().Count(line[:n])})
			line = line[n:]
		}
	}
	return out
}

// shortLines returns the first line of a text, or as many as have minPiece bytes at most.
func shortLines(text string) string {
	n := 0
	for n < len(text) {
		next := len(text)
		if i := strings.IndexByte(text[n:], '\n'); i >= 0 {
			next = n + i + 1
		}
		if n > 0 && next > minPiece {
			break
		}
		n = next
	}
	return text[:n]
}

// pack returns vectors of one length as little-endian float32.
func pack(vectors [][]float32) []byte {
	var out []byte
	for _, v := range vectors {
		for _, f := range v {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
		}
	}
	return out
}

// unpack is the reverse of pack for n vectors. It returns nil if b does not hold them.
func unpack(b []byte, n int) [][]float32 {
	if n == 0 || len(b) == 0 || len(b)%(4*n) != 0 {
		return nil
	}
	size := len(b) / 4 / n
	out := make([][]float32, n)
	for i := range out {
		out[i] = make([]float32, size)
		for j := range out[i] {
			out[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*(i*size+j):]))
		}
	}
	return out
}

// normalize scales a vector to length 1.
func normalize(v []float32) {
	var sum float64
	for _, f := range v {
		sum += float64(f) * float64(f)
	}
	if sum == 0 {
		return
	}
	scale := float32(1 / math.Sqrt(sum))
	for i := range v {
		v[i] *= scale
	}
}
