// Package docs has the pages of the documentation, and the files beside them, from which package site makes web pages.
package docs

import "embed"

// Files are the pages with their pictures, and the rules and the dashboard for monitoring. README.md is the first page,
// and its lists are the navigation.
//
//go:embed *.md *.svg decisions/*.md console/*.png observe/*.yaml observe/*.json
var Files embed.FS
