package egress

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// A spelled is one character of a word with all its encodings in JSON, URLs, HTML and programs,
// also nested.
type spelled struct {
	raw    string
	plus   bool                 // "+" also encodes it
	others map[[2]byte][]string // encodings in lower case, by their first two bytes; matched in any case
}

// leads are the first bytes of encoded characters.
const leads = `%\&+`

var isLead = func() (is [256]bool) {
	for _, b := range []byte(leads) {
		is[b] = true
	}
	return is
}()

// spellings caches the spellings of ASCII characters.
var spellings [utf8.RuneSelf]struct {
	once sync.Once
	spelled
}

// spell returns the characters of a text. Invalid UTF-8 is treated byte by byte.
func spell(text string) []*spelled {
	var all []*spelled
	seen := map[rune]*spelled{}
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r < utf8.RuneSelf:
			s := &spellings[r]
			s.once.Do(func() { s.spelled = spelling(r, text[:n]) })
			all = append(all, &s.spelled)
		case r == utf8.RuneError && n == 1:
			s := spelling(r, text[:n])
			all = append(all, &s)
		default:
			if seen[r] == nil {
				s := spelling(r, text[:n])
				seen[r] = &s
			}
			all = append(all, seen[r])
		}
		text = text[n:]
	}
	return all
}

// named are the HTML names of characters that occur in secrets.
var named = map[rune]string{'&': "amp", '<': "lt", '>': "gt", '"': "quot", '\'': "apos", '+': "plus", '/': "sol",
	'=': "equals", '_': "lowbar",
	'#': "num", '!': "excl", '%': "percnt", '$': "dollar", '(': "lpar", ')': "rpar", '*': "ast", ',': "comma",
	'.': "period", ':': "colon",
	';': "semi", '?': "quest", '@': "commat", '[': "lsqb", ']': "rsqb", '\\': "bsol", '^': "hat", '`': "grave",
	'{': "lcub", '|': "vert",
	'}': "rcub", '\t': "tab", '\n': "newline"}

// short are JSON's escapes by a single letter.
var short = map[rune]string{'\n': "n", '\r': "r", '\t': "t", '\b': "b", '\f': "f"}

func spelling(r rune, raw string) spelled {
	s := spelled{raw: raw, others: map[[2]byte][]string{}}
	add := func(forms ...string) {
		for _, form := range forms {
			form = strings.ToLower(form)
			if form == "+" {
				s.plus = true
				continue
			}
			key := [2]byte{form[0], form[1]}
			s.others[key] = append(s.others[key], form)
		}
	}
	once, twice := "", ""
	for _, b := range []byte(raw) {
		once, twice = once+fmt.Sprintf("%%%02x", b), twice+fmt.Sprintf("%%25%02x", b)
	}
	add(once, twice)
	if r == ' ' {
		add("+", "%2b")
	}
	var units string
	for i, u := range utf16.Encode([]rune{r}) {
		if i > 0 {
			units += "BACK"
		}
		units += fmt.Sprintf("u%04x", u)
	}
	// JSON nested in JSON doubles the backslashes.
	for _, back := range []string{`\`, `\\`, `\\\\`} {
		add(back+strings.ReplaceAll(units, "BACK", back), fmt.Sprintf("%su{%x}", back, r))
		if len(raw) == 1 {
			add(fmt.Sprintf("%sx%02x", back, raw[0]), fmt.Sprintf("%s%03o", back, raw[0]))
		}
		if c, ok := short[r]; ok {
			add(back + c)
		}
	}
	if r < utf8.RuneSelf && strings.ContainsRune(`"'/\`, r) {
		for n := 1; n <= 7; n++ {
			add(strings.Repeat(`\`, n) + raw)
		}
	}
	for _, and := range []string{"&", "&amp;", `\u0026`, `\\u0026`, "%26"} {
		hash := and + "#"
		if and == "%26" {
			hash = "%26%23"
		}
		for zeros := range 4 {
			zero := strings.Repeat("0", zeros)
			add(fmt.Sprintf("%sx%s%x;", hash, zero, r), fmt.Sprintf("%s%s%d;", hash, zero, r),
				fmt.Sprintf("%sx%s%x%%3b", hash, zero, r), fmt.Sprintf("%s%s%d%%3b", hash, zero, r))
		}
		if name, ok := named[r]; ok {
			add(and+name+";", and+name+"%3b")
		}
	}
	return s
}

// longest returns the length of the longest spelling of a word.
func longest(word []*spelled) int {
	sum := 0
	for _, c := range word {
		n := len(c.raw)
		for _, forms := range c.others {
			for _, form := range forms {
				n = max(n, len(form))
			}
		}
		sum += n
	}
	return sum
}

// match returns the end of the longest spelling of a word at the start of text, or -1 if there
// is none.
func match(word []*spelled, text []byte, fold bool) int {
	// Fast path for unencoded characters.
	n := 0
	for !fold && n < len(word) && len(text) > 0 && len(word[n].raw) == 1 && text[0] == word[n].raw[0] &&
		!isLead[text[0]] {
		text, n = text[1:], n+1
	}
	switch {
	case n == len(word):
		return n
	case len(text) == 0 || !fold && text[0] != word[n].raw[0] && !isLead[text[0]]:
		return -1
	}
	end := matchSpelled(word[n:], text, fold)
	if end >= 0 {
		end += n
	}
	return end
}

// A pairs is a set of byte pairs.
type pairs [1 << 16 / 8]byte

func (p *pairs) add(a, b byte)      { p[int(a)<<5|int(b)>>3] |= 1 << (b & 7) }
func (p *pairs) has(a, b byte) bool { return p[int(a)<<5|int(b)>>3]&(1<<(b&7)) != 0 }

// addWord adds the first two bytes of all spellings of a word.
func (p *pairs) addWord(word []*spelled, fold bool) {
	first, then := word[0], map[byte]bool{}
	for b := range 256 {
		then[byte(b)] = len(first.raw) == 1 && (len(word) == 1 || word[1].mayBegin(byte(b), fold))
	}
	if len(first.raw) > 1 {
		then[first.raw[1]] = true
	}
	for b, ok := range then {
		if !ok {
			continue
		}
		p.add(first.raw[0], b)
		if fold {
			p.add(upper(first.raw[0]), b)
		}
		if first.plus {
			p.add('+', b)
		}
	}
	for key := range first.others {
		p.add(key[0], key[1])
		p.add(key[0], upper(key[1]))
	}
}

// begins reports whether a text, which is not empty, starts with a spelling of c.
func (c *spelled) begins(text []byte) bool {
	if text[0] == c.raw[0] {
		return true
	}
	if !isLead[text[0]] || len(text) > 1 && !c.plus && len(c.others[[2]byte{text[0], lower(text[1])}]) == 0 {
		return false
	}
	var room [8]int
	return len(c.after(text, 0, false, room[:0])) > 0
}

func (c *spelled) mayBegin(b byte, fold bool) bool {
	return b == c.raw[0] || isLead[b] || fold && lower(b) == lower(c.raw[0])
}

// matchSpelled is match for a word with any characters encoded.
func matchSpelled(word []*spelled, text []byte, fold bool) (end int) {
	var room [2][8]int
	at, next := append(room[0][:0], 0), room[1][:0]
	for _, c := range word {
		next = next[:0]
		for _, from := range at {
			next = c.after(text, from, fold, next)
		}
		if len(next) == 0 {
			return -1
		}
		at, next = next, at
	}
	for _, i := range at {
		end = max(end, i)
	}
	return end
}

// after appends to ends the offsets at which a spelling of c ends that starts at from.
func (c *spelled) after(text []byte, from int, fold bool, ends []int) []int {
	rest := text[from:]
	if len(rest) == 0 {
		return ends
	}
	try := func(form string, fold bool) {
		n := len(form)
		if n > len(rest) || !same(rest[:n], form, fold) {
			return
		}
		for _, end := range ends {
			if end == from+n {
				return
			}
		}
		ends = append(ends, from+n)
	}
	if rest[0] == c.raw[0] || fold {
		try(c.raw, fold)
	}
	if isLead[rest[0]] && len(rest) > 1 {
		for _, form := range c.others[[2]byte{rest[0], lower(rest[1])}] {
			try(form, true)
		}
	}
	if c.plus && rest[0] == '+' {
		try("+", false)
	}
	return ends
}

// same compares a text with a form of the same length, ignoring case if fold is true.
func same(text []byte, form string, fold bool) bool {
	if !fold {
		return string(text) == form
	}
	for i, b := range text {
		if b != form[i] && lower(b) != lower(form[i]) {
			return false
		}
	}
	return true
}

func upper(b byte) byte {
	if b >= 'a' && b <= 'z' {
		return b - 'a' + 'A'
	}
	return b
}

func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
