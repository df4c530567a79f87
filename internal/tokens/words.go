package tokens

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The functions in this file divide a text as the regular expressions of OpenAI's encodings do. By
// hand it is several times as fast, and the expressions need a package that can look ahead.

func isMark(r rune) bool    { return r >= utf8.RuneSelf && unicode.Is(unicode.M, r) }
func isLetter(r rune) bool  { return unicode.IsLetter(r) }
func isNumber(r rune) bool  { return unicode.IsNumber(r) }
func isNewline(r rune) bool { return r == '\r' || r == '\n' }

// isCaseless reports whether a rune may be in the upper and in the lower part of a word.
func isCaseless(r rune) bool {
	return r >= utf8.RuneSelf && unicode.In(r, unicode.Lm, unicode.Lo, unicode.M)
}

func isUpper(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Lt) || isCaseless(r) }
func isLower(r rune) bool { return unicode.Is(unicode.Ll, r) || isCaseless(r) }

// isPrefix reports whether a rune may stand before the letters of a word.
func isPrefix(r rune) bool { return !isNewline(r) && !isLetter(r) && !isNumber(r) }

func isSymbol(r rune) bool { return !unicode.IsSpace(r) && !isLetter(r) && !isNumber(r) }

// run returns the length of the runes at the beginning of a text that satisfy is.
func run(text string, is func(rune) bool) int {
	for i, r := range text {
		if !is(r) {
			return i
		}
	}
	return len(text)
}

// nextCl100k returns the length of the first match of
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+
//
// or of
//
//	\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func nextCl100k(text string) int {
	if n := contraction(text); n > 0 {
		return n
	}
	first, size := utf8.DecodeRuneInString(text)
	if !isPrefix(first) {
		size = 0
	}
	if n := run(text[size:], isLetter); n > 0 {
		return size + n
	}
	return nextOther(text, isNewline)
}

// nextO200k returns the length of the first match of
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//
// or of the same with + in place of * and * in place of +, or of
//
//	\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func nextO200k(text string) int {
	first, size := utf8.DecodeRuneInString(text)
	for _, letters := range []func(string) int{lowerWord, upperWord} {
		if isPrefix(first) {
			if n := letters(text[size:]); n > 0 {
				n += size
				return n + contraction(text[n:])
			}
		}
		if isLetter(first) || isMark(first) {
			if n := letters(text); n > 0 {
				return n + contraction(text[n:])
			}
		}
	}
	return nextOther(text, func(r rune) bool { return isNewline(r) || r == '/' })
}

// lowerWord returns the length of upper*lower+. What is caseless belongs to upper as far as lower
// keeps one.
func lowerWord(text string) int {
	upper := run(text, isUpper)
	if lower := run(text[upper:], isLower); lower > 0 {
		return upper + lower
	}
	for upper > 0 {
		last, size := utf8.DecodeLastRuneInString(text[:upper])
		if isCaseless(last) {
			return upper
		}
		upper -= size
	}
	return 0
}

// upperWord returns the length of upper+lower*.
func upperWord(text string) int {
	upper := run(text, isUpper)
	if upper == 0 {
		return 0
	}
	return upper + run(text[upper:], isLower)
}

// contraction returns the length of an English ending such as 's or 'll.
func contraction(text string) int {
	if text == "" || text[0] != '\'' {
		return 0
	}
	rest := text[1:]
	first, size := utf8.DecodeRuneInString(rest)
	switch first {
	case 's', 'S', 'ſ', 't', 'T', 'm', 'M', 'd', 'D':
		return 1 + size
	}
	if len(rest) >= 2 {
		switch strings.ToLower(rest[:2]) {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}

// nextOther returns the length of the first word that has no letters. trailer says what belongs to
// symbols that stand before it.
func nextOther(text string, trailer func(rune) bool) int {
	first, size := utf8.DecodeRuneInString(text)
	if isNumber(first) {
		n := size
		for range 2 {
			r, size := utf8.DecodeRuneInString(text[n:])
			if size == 0 || !isNumber(r) {
				break
			}
			n += size
		}
		return n
	}
	start := 0
	if first == ' ' {
		start = 1
	}
	if n := start + run(text[start:], isSymbol); n > start {
		return n + run(text[n:], trailer)
	}
	space := run(text, unicode.IsSpace)
	if i := strings.LastIndexAny(text[:space], "\r\n"); i >= 0 {
		return i + 1
	}
	// The last space before a word belongs to the word.
	if _, last := utf8.DecodeLastRuneInString(text[:space]); space < len(text) && space > last {
		return space - last
	}
	return space
}
