package tokens

import "math"

const noRank = math.MaxUint32

// A part is a piece of a word that begins at its index in the list of parts.
type part struct {
	prev, next int32  // the neighbours' indices; a next of the word's length is its end
	rank       uint32 // of this part and the next one together, or noRank
}

// merge returns the number of tokens of a word: it joins the two neighbours of the lowest rank, of
// equal ones the leftmost, until no two are in the vocabulary.
func (e *Encoding) merge(word string) int {
	size := int32(len(word))
	parts := make([]part, size)
	rank := func(i int32) uint32 {
		end := parts[i].next
		if end == size {
			return noRank
		}
		if r, ok := e.ranks[word[i:parts[end].next]]; ok {
			return r
		}
		return noRank
	}
	for i := range size {
		parts[i] = part{prev: i - 1, next: i + 1, rank: noRank}
	}
	var waiting pairs
	set := func(i int32) {
		parts[i].rank = rank(i)
		if parts[i].rank != noRank {
			waiting.push(uint64(parts[i].rank)<<32 | uint64(i))
		}
	}
	for i := range size {
		set(i)
	}
	count := len(word)
	for len(waiting) > 0 {
		pair := waiting.pop()
		i := int32(uint32(pair))
		if parts[i].rank != uint32(pair>>32) { // one of the two was joined with another since
			continue
		}
		joined := parts[i].next
		parts[joined].rank = noRank
		parts[i].next = parts[joined].next
		if parts[i].next < size {
			parts[parts[i].next].prev = i
		}
		count--
		set(i)
		if parts[i].prev >= 0 {
			set(parts[i].prev)
		}
	}
	return count
}

// pairs is a heap, smallest first, of ranks with the index of the left part in the lower half.
type pairs []uint64

func (h *pairs) push(pair uint64) {
	*h = append(*h, pair)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up] <= s[i] {
			return
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *pairs) pop() uint64 {
	s := *h
	first, last := s[0], len(s)-1
	s[0] = s[last]
	s = s[:last]
	*h = s
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return first
		}
		if down+1 < last && s[down+1] < s[down] {
			down++
		}
		if s[i] <= s[down] {
			return first
		}
		s[i], s[down] = s[down], s[i]
		i = down
	}
}
