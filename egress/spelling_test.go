package egress

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// spelledKey has characters that every encoding escapes differently.
const spelledKey = `sk-a+B/c=d&e"f'g<h>%i \_é~!*(1)`

// each encodes every character of a text.
func each(text string, spell func(r rune) string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteString(spell(r))
	}
	return b.String()
}

// except encodes all characters but letters, digits and those in plain.
func except(plain string, spell func(r rune) string) func(r rune) string {
	return func(r rune) string {
		if r < 0x80 && (r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z' || strings.ContainsRune(plain, r)) {
			return string(r)
		}
		return spell(r)
	}
}

func percentOf(format string) func(r rune) string {
	return func(r rune) string {
		s := ""
		for _, b := range []byte(string(r)) {
			s += fmt.Sprintf(format, b)
		}
		return s
	}
}

func formatOf(format string) func(r rune) string {
	return func(r rune) string { return fmt.Sprintf(format, r) }
}

// A mask hides a secret in every encoding, also in pieces.
func TestSpellings(t *testing.T) {
	asJSON, b64 := inJSON(spelledKey), base64.StdEncoding.EncodeToString([]byte(spelledKey+"??>>~~"))
	dotnet := except(`-_.~!*() =%\`, formatOf(`\u%04X`))
	for name, form := range map[string]string{
		"as it is":   spelledKey,
		"JSON of Go": asJSON,
		"JSON of .NET": strings.ReplaceAll(each(strings.ReplaceAll(spelledKey, `\`, "\x01"), dotnet),
			`\u0001`, `\\`),
		"JSON, all escaped":    each(spelledKey, formatOf(`\u%04x`)),
		"JSON in JSON":         inJSON(asJSON),
		"JSON in JSON in JSON": inJSON(inJSON(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(spelledKey))),
		"JSON of PHP":          strings.ReplaceAll(asJSON, "/", `\/`),
		"HTML of Go":           html.EscapeString(spelledKey),
		"HTML in hex":          each(spelledKey, except("", formatOf("&#x%X;"))),
		"HTML with zeros":      each(spelledKey, except("", formatOf("&#%04d;"))),
		"HTML in JSON":         inJSON(html.EscapeString(spelledKey)),
		"HTML twice":           html.EscapeString(html.EscapeString(spelledKey)),
		"HTML with names": strings.NewReplacer("&", "&amp;", "+", "&plus;", "/", "&sol;", "=", "&equals;",
			`"`, "&quot;").Replace(spelledKey),
		"a query of Go":      url.QueryEscape(spelledKey),
		"a path of Go":       url.PathEscape(spelledKey),
		"Python's quote":     each(spelledKey, except("_.-~/", percentOf("%%%02X"))),
		"encodeURIComponent": each(spelledKey, except("-_.!~*'()", percentOf("%%%02X"))),
		"encodeURI":          each(spelledKey, except("-_.!~*'();/?:@&=+$,#", percentOf("%%%02x"))),
		"all in percents, mixed case": each(spelledKey, percentOf("%%%02x"))[:30] + strings.ToUpper(each(spelledKey,
			percentOf("%%%02x"))[30:]),
		"a URL in a URL":      url.QueryEscape(url.PathEscape(spelledKey)),
		"hexadecimal escapes": strings.ReplaceAll(each(spelledKey, except("é", formatOf(`\x%02x`))), "\\xe9", "é"),
		"hex":                 hex.EncodeToString([]byte(spelledKey)),
		"HEX":                 strings.ToUpper(hex.EncodeToString([]byte(spelledKey))),
		"base64 in JSON of .NET": strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(spelledKey)), "+",
			`\u002B`),
		"base64 in a URL":  url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(spelledKey))),
		"base64, and more": b64[:len(b64)-8],
	} {
		m := newMask([]Secret{{Value: spelledKey, Placeholder: "PLACE"}})
		text := "before " + form + " after"
		for cut, from := range map[string]io.Reader{"whole": strings.NewReader(text),
			"in bytes":  iotest.OneByteReader(strings.NewReader(text)),
			"in halves": iotest.HalfReader(strings.NewReader(text))} {
			got, err := io.ReadAll(&maskedReader{mask: m, from: from})
			if err != nil || !strings.HasPrefix(string(got), "before PLACE") || !strings.HasSuffix(string(got),
				" after") {
				t.Errorf("%s, %s: got %q of %q, %v", name, cut, got, text, err)
			}
		}
		if got := m.sameLength().replace(text); len(got) != len(text) || !strings.HasPrefix(got, "before *****") {
			t.Errorf("%s: got %q, want equal length", name, got)
		}
	}
	// Text that only starts like a secret passes.
	m := newMask([]Secret{{Value: spelledKey, Placeholder: "PLACE"}})
	for _, text := range []string{`sk-a\u002b`, "sk-a&#x2b", "a&b%20\\", `{"a":"b\"\\"}`, "", "sk-a+B/c=d&e"} {
		if got := m.replace(text); got != text {
			t.Errorf("got %q of %q", got, text)
		}
	}
}

// BenchmarkMask measures masking of typical responses.
func BenchmarkMask(b *testing.B) {
	plain := strings.Repeat("The quick brown fox jumps over the lazy dog, 1234567890 times. ", 1<<14)
	for name, text := range map[string]string{
		"text": plain,
		"JSON": strings.Repeat(
			`{"id":"a1","text":"she said \"hello\" & left\n","url":"https:\/\/example.com\/a%20b"},`, 1<<13),
		"base64": base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x1y", 3) + plain))[:1<<20],
	} {
		m := newMask([]Secret{{Value: "sk-proj-0123456789abcdefABCDEF+/x", Placeholder: "PLACE"},
			{Value: "ghp_0123456789abcdefABCDEF", Placeholder: "OTHER"}})
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := io.Copy(io.Discard, &maskedReader{mask: m, from: strings.NewReader(text)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
