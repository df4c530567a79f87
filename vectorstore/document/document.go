// Package document reads the text of files: PDF, DOCX, PPTX, XLSX, HTML, and everything
// that is text already, such as Markdown and source code.
//
// Files are hostile. Formats that need a parser are read in a child process without
// privileges, files or network, and with little memory and time (child.go).
package document

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"github.com/berth-run/berth/vectorstore"
)

// Limits of the input and the output, in bytes.
const (
	maxPlain  = 64 << 20  // of a text file
	maxParsed = 128 << 20 // of a file that needs a parser
	maxText   = 48 << 20  // of the text of any file
)

// parsers are the formats that need a parser, by the extension of the file's name.
var parsers = map[string]func(content []byte, out *text) error{
	".pdf": readPDF, ".docx": readDOCX, ".pptx": readPPTX, ".xlsx": readXLSX,
	".html": readHTML, ".htm": readHTML, ".xhtml": readHTML,
}

// binary are formats without a parser that could be taken for text.
var binary = map[string]bool{".doc": true, ".ppt": true, ".xls": true, ".rtf": true, ".odt": true, ".ods": true,
	".odp": true, ".epub": true}

// Text returns the text of a plain file in this process, and of others in a process made by
// child. Its errors for clients are *vectorstore.Unreadable.
func Text(ctx context.Context, child Child, name string, content io.Reader) (string, error) {
	extension := strings.ToLower(path.Ext(name))
	if binary[extension] {
		return "", unsupported(extension)
	}
	if parsers[extension] != nil {
		return child.text(ctx, extension, content)
	}
	raw, err := io.ReadAll(io.LimitReader(content, maxPlain+1))
	if err != nil {
		return "", fmt.Errorf("read file: %w", err)
	}
	if len(raw) > maxPlain {
		return "", tooLarge(maxPlain)
	}
	return plain(raw, extension)
}

func unsupported(extension string) error {
	return &vectorstore.Unreadable{Code: "unsupported_file",
		Message: fmt.Sprintf(
			"Files of type '%s' are not supported. Convert the file to PDF, DOCX, PPTX, XLSX, HTML or text.",
			extension)}
}

func invalid(format string, args ...any) error {
	return &vectorstore.Unreadable{Code: "invalid_file", Message: fmt.Sprintf(format, args...)}
}

func tooLarge(most int) error {
	return invalid("The file is larger than %d bytes, the limit for files of its type. Divide it into several files.",
		most)
}

// plain decodes text in UTF-8, or in UTF-16 with a byte order mark.
func plain(raw []byte, extension string) (string, error) {
	if bytes.HasPrefix(raw, []byte{0xff, 0xfe}) || bytes.HasPrefix(raw, []byte{0xfe, 0xff}) {
		decoded, err := unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Bytes(raw)
		if err != nil {
			return "", invalid("The file is not valid UTF-16.")
		}
		raw = decoded
	}
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	if bytes.IndexByte(raw[:min(len(raw), 8<<10)], 0) >= 0 {
		return "", unsupported(extension)
	}
	if utf8.Valid(raw) {
		return string(raw), nil
	}
	out := make([]rune, len(raw)) // Latin-1
	for i, b := range raw {
		out[i] = rune(b)
	}
	return string(out), nil
}

// A text collects the text of a document, up to maxText.
type text struct{ strings.Builder }

// add adds a string. It returns an error if the text becomes too long.
func (t *text) add(s string) error {
	if t.Len()+len(s) > maxText {
		return invalid("The file has more than %d bytes of text. Divide it into several files.", maxText)
	}
	t.WriteString(s)
	return nil
}

// parse returns the text of a file that needs a parser. A panic of the parser is an error.
func parse(extension string, content []byte) (out string, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = "", invalid("The file is damaged: its %s could not be read.", strings.ToUpper(extension[1:]))
		}
	}()
	var t text
	if err := parsers[extension](content, &t); err != nil {
		return "", err
	}
	return t.String(), nil
}
