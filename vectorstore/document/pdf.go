package document

import (
	"bytes"

	"github.com/ledongthuc/pdf"
)

// maxPages bounds the pages of a PDF.
const maxPages = 20_000

func readPDF(content []byte, out *text) error {
	r, err := pdf.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return invalid("The file is not a PDF that can be read: %v.", err)
	}
	pages := r.NumPage()
	if pages > maxPages {
		return invalid("The file has %d pages, above the limit of %d.", pages, maxPages)
	}
	fonts := map[string]*pdf.Font{}
	for n := 1; n <= pages; n++ {
		page := r.Page(n)
		if page.V.IsNull() {
			continue
		}
		for _, name := range page.Fonts() {
			if _, ok := fonts[name]; !ok {
				font := page.Font(name)
				fonts[name] = &font
			}
		}
		s, err := page.GetPlainText(fonts)
		if err != nil {
			return invalid("Page %d of the file could not be read: %v.", n, err)
		}
		if err := out.add(s + "\n\n"); err != nil {
			return err
		}
	}
	return nil
}
