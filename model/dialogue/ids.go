package dialogue

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/berth-run/berth"
)

// maxCallID bounds an id that is kept as the vendor gave it; it is the bound on
// call_id in Responses.
const maxCallID = 64

// IDs gives the calls of one request ids that fit the vendor: their own, unless
// that was there before, is longer than Length or has other characters than those
// that Plain allows. It gives the same ids to the same calls each time.
type IDs struct {
	Length int
	Plain  bool // letters, digits, _ and - only

	used map[string]int // how many calls had this id
}

// For returns the id under which the vendor sees a call.
func (s *IDs) For(id string) string {
	if s.used == nil {
		s.used = map[string]int{}
	}
	n := s.used[id]
	s.used[id]++
	if n == 0 && id != "" && len(id) <= s.Length && (!s.Plain || Name(id) == id) {
		return id
	}
	sum := sha256.Sum256([]byte(id + strings.Repeat("+", n)))
	digest := hex.EncodeToString(sum[:])
	return digest[:min(s.Length, len(digest))]
}

// NewIDs gives the calls of an answer to a conversation ids of which none was
// there before: an output is found by its call's id.
type NewIDs struct {
	Items []berth.Item

	taken map[string]bool // nil until needed
}

// For returns id, or a new one if that is empty, too long, or taken.
func (s *NewIDs) For(id string) string {
	if s.taken == nil {
		s.taken = map[string]bool{}
		for _, it := range s.Items {
			s.taken[it.CallID()] = true
		}
	}
	if id == "" || len(id) > maxCallID || s.taken[id] {
		id = berth.NewID(berth.PrefixCall)
	}
	s.taken[id] = true
	return id
}
