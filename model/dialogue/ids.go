package dialogue

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/berth-run/berth"
)

// maxCallID bounds an id that is used as the vendor sent it; it is the bound on
// call_id in Responses.
const maxCallID = 64

// IDs assigns call ids that fit the vendor to the calls of one request. A call keeps
// its id unless that repeats, is longer than Length, or has characters that Plain
// excludes. The same calls get the same ids each time.
type IDs struct {
	Length int
	Plain  bool // only letters, digits, _ and -

	used map[string]int // how many calls had the id
}

// For returns the id of a call for the vendor.
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

// NewIDs assigns ids to the calls of an answer. None of them occurs in Items, because
// outputs are matched to calls by id.
type NewIDs struct {
	Items []berth.Item

	taken map[string]bool // nil until needed
}

// For returns id, or a new one if id is empty, too long, or taken.
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
