package grammar

import (
	"math/bits"
	"regexp/syntax"
	"unicode/utf8"
)

// Limits of one match. A step is about 50 ns; a waiter about 50 bytes.
const (
	maxSteps   = 10_000_000
	maxWaiters = 1_000_000
)

// An item is a state that a rule has reached, which was entered at the origin, a place in
// the text.
type item struct{ state, origin int32 }

func (it item) key() uint64 { return uint64(uint32(it.state))<<32 | uint64(uint32(it.origin)) }

// A waiter is an item that continues when a rule ends. Those of one rule at one place are
// a list.
type waiter struct {
	item
	next int32 // in matcher.waiters; -1 at the end
}

// A matcher is one match. After run it holds the items of the last place that it reached.
type matcher struct {
	net   *network
	limit int

	at      int32 // the place, in bytes
	context syntax.EmptyOp
	accepts bool   // the text up to here belongs to the grammar
	todo    []item // found at this place, and not handled yet
	seen    set    // of items of this place
	scans   []item // of this place, which read a character
	empty   map[int32]bool

	waiting map[uint64]int32 // the first waiter, by rule and place
	waiters []waiter

	text    string
	longest map[uint64]int   // the end of ignored text, by rule and place; -1 if there is none
	delayed map[int32][]item // items at places to come, after ignored text
}

// run matches a text. It returns the place where the text leaves the grammar, or -1.
func (m *matcher) run(start int32, text string) (int, error) {
	m.text = text
	m.open(start, item{-1, 0})
	for i, prev := 0, rune(-1); ; {
		r, width := rune(-1), 0
		if i < len(text) {
			r, width = utf8.DecodeRuneInString(text[i:])
		}
		m.context = syntax.EmptyOpContext(prev, r)
		if err := m.close(); err != nil {
			return 0, err
		}
		if width == 0 {
			if m.accepts {
				return -1, nil
			}
			return i, nil
		}
		next := append(m.read(r), m.delayed[int32(i+width)]...)
		delete(m.delayed, int32(i+width))
		if len(next) == 0 && len(m.delayed) == 0 {
			return i, nil
		}
		i += width
		m.move(int32(i), next)
		prev = r
	}
}

// munch returns the end of the longest text from this place that a terminal matches, or -1.
func (m *matcher) munch(rule int32) (end int, err error) {
	sub := matcher{net: m.net, limit: m.limit, waiting: map[uint64]int32{}, at: m.at}
	defer func() { m.limit = sub.limit }()
	end = -1
	prev, _ := utf8.DecodeLastRuneInString(m.text[:m.at])
	if m.at == 0 {
		prev = -1
	}
	sub.enter(rule, item{-1, m.at})
	for i := int(m.at); ; {
		r, width := rune(-1), 0
		if i < len(m.text) {
			r, width = utf8.DecodeRuneInString(m.text[i:])
		}
		sub.context = syntax.EmptyOpContext(prev, r)
		if err := sub.close(); err != nil {
			return 0, err
		}
		if sub.accepts {
			end = i
		}
		next := sub.read(r)
		if width == 0 || len(next) == 0 {
			return end, nil
		}
		i += width
		sub.move(int32(i), next)
		prev = r
	}
}

// read returns the items after a character.
func (m *matcher) read(r rune) []item {
	var next []item
	for _, it := range m.scans {
		if st := &m.net.states[it.state]; matches(st.runes, r) {
			next = append(next, item{st.out, it.origin})
		}
	}
	return next
}

func matches(inst *syntax.Inst, r rune) bool {
	switch inst.Op {
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return r != '\n'
	}
	return inst.MatchRune(r)
}

// move starts the next place with items.
func (m *matcher) move(at int32, items []item) {
	m.at, m.accepts = at, false
	m.scans, m.empty = m.scans[:0], nil
	m.seen.clear()
	for _, it := range items {
		m.add(it)
	}
}

// add notes an item of this place, once.
func (m *matcher) add(it item) {
	if m.seen.add(it.key()) {
		m.todo = append(m.todo, it)
	}
}

// close handles the items of this place and all that follow from them without a
// character.
func (m *matcher) close() error {
	for len(m.todo) > 0 {
		it := m.todo[len(m.todo)-1]
		m.todo = m.todo[:len(m.todo)-1]
		if m.limit--; m.limit < 0 || len(m.waiters) > maxWaiters {
			return ErrLimit
		}
		st := &m.net.states[it.state]
		switch st.op {
		case opJump:
			m.add(item{st.out, it.origin})
		case opFork:
			m.add(item{st.out, it.origin})
			m.add(item{st.other, it.origin})
		case opAssert:
			if st.assert&^m.context == 0 {
				m.add(item{st.out, it.origin})
			}
		case opScan:
			m.scans = append(m.scans, it)
		case opCall:
			if err := m.open(st.other, item{st.out, it.origin}); err != nil {
				return err
			}
		case opAccept:
			m.end(st.out, it.origin)
		}
	}
	return nil
}

// place returns the key of a rule that was entered at a place.
func place(rule, at int32) uint64 { return item{rule, at}.key() }

// open enters a rule at this place for a waiter. Ignored text matches as much as it can, so the tail of a comment is
// never parsed as input.
func (m *matcher) open(rule int32, w item) (err error) {
	if !m.net.greedy[rule] {
		m.enter(rule, w)
		return nil
	}
	end, known := m.longest[place(rule, m.at)]
	if !known {
		if end, err = m.munch(rule); err != nil {
			return err
		}
		if m.longest == nil {
			m.longest, m.delayed = map[uint64]int{}, map[int32][]item{}
		}
		m.longest[place(rule, m.at)] = end
	}
	switch {
	case end == int(m.at):
		m.resume(w)
	case end >= 0:
		m.delayed[int32(end)] = append(m.delayed[int32(end)], w)
	}
	return nil
}

// enter enters a rule at this place for a waiter.
func (m *matcher) enter(rule int32, w item) {
	first, known := m.waiting[place(rule, m.at)]
	if !known {
		first = -1
		m.add(item{m.net.entry[rule], m.at})
	}
	m.waiting[place(rule, m.at)] = int32(len(m.waiters))
	m.waiters = append(m.waiters, waiter{w, first})
	if m.empty[rule] { // it has ended here already
		m.resume(w)
	}
}

// end continues the items that wait for a rule that was entered at the origin.
func (m *matcher) end(rule, origin int32) {
	if origin == m.at {
		if m.empty == nil {
			m.empty = map[int32]bool{}
		}
		m.empty[rule] = true
	}
	for n := m.waiting[place(rule, origin)]; n >= 0; n = m.waiters[n].next {
		m.limit--
		m.resume(m.waiters[n].item)
	}
}

func (m *matcher) resume(w item) {
	if w.state < 0 {
		m.accepts = true
		return
	}
	m.add(w)
}

// A set is a set of keys that is emptied often. Its zero value is empty.
type set struct {
	keys  []uint64
	marks []uint32 // the round in which a slot was filled
	round uint32
	n     int
}

func (s *set) clear() {
	s.n = 0
	if s.round++; s.round == 0 { // the counter wrapped round
		clear(s.marks)
		s.round = 1
	}
}

// add reports whether the key is new.
func (s *set) add(key uint64) bool {
	if 2*s.n >= len(s.keys) {
		s.grow()
	}
	if s.round == 0 {
		s.round = 1
	}
	mask := uint64(len(s.keys) - 1)
	for i := hash(key) & mask; ; i = (i + 1) & mask {
		switch {
		case s.marks[i] != s.round:
			s.keys[i], s.marks[i] = key, s.round
			s.n++
			return true
		case s.keys[i] == key:
			return false
		}
	}
}

func (s *set) grow() {
	old := *s
	size := max(256, 2*len(old.keys))
	s.keys, s.marks, s.n = make([]uint64, size), make([]uint32, size), 0
	if s.round == 0 {
		s.round = 1
	}
	for i, key := range old.keys {
		if old.marks[i] == s.round {
			s.add(key)
		}
	}
}

// hash mixes a key.
func hash(key uint64) uint64 {
	hi, lo := bits.Mul64(key^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}
