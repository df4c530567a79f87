// Package assets has the files of the console that browsers load. The documentation site shares its fonts, its icon and
// the tokens of its design.
package assets

import (
	"embed"
	"strings"
)

// Files are the files by their names, those of other projects below vendor.
//
//go:embed *.css *.js *.svg vendor
var Files embed.FS

// endOfTokens begins the rules that follow the fonts and the tokens in console.css.
const endOfTokens = "* { box-sizing"

// Tokens returns the beginning of console.css: the fonts, whose files are in vendor beside the style sheet, and the
// colours, sizes and spaces of the design.
func Tokens() string {
	sheet, err := Files.ReadFile("console.css")
	if err != nil {
		panic(err) // it is embedded
	}
	tokens, _, _ := strings.Cut(string(sheet), endOfTokens)
	return tokens
}
