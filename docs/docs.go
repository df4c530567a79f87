// Package docs has the pages of the documentation, from which package site makes web pages.
package docs

import "embed"

// Files are the pages with their pictures. README.md is the first page, and its lists are the navigation.
//
//go:embed *.md *.svg decisions/*.md console/*.png
var Files embed.FS
