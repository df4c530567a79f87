package document

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Office files are zip archives of XML parts. Only the parts with text are read; their
// names are looked up and never become paths.

const (
	maxUnpacked = 256 << 20 // bytes of all parts that are read, whatever the archive says
	maxParts    = 20_000
)

// An archive counts the unpacked bytes of an office file.
type archive struct {
	zip  *zip.Reader
	left int64
}

func openArchive(content []byte) (*archive, error) {
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, invalid("The file is not a document of its type: %v.", err)
	}
	if len(z.File) > maxParts {
		return nil, invalid("The file has %d parts, above the limit of %d.", len(z.File), maxParts)
	}
	return &archive{z, maxUnpacked}, nil
}

var errUnpacked = invalid("The file unpacks to more than %d bytes.", maxUnpacked)

// A budget reads from a part until the archive's total is used up.
type budget struct {
	r io.Reader
	a *archive
}

func (b budget) Read(p []byte) (int, error) {
	if b.a.left <= 0 {
		return 0, errUnpacked
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.a.left)])
	b.a.left -= int64(n)
	return n, err
}

// matching returns the parts whose names match, in the order of their numbers.
func (a *archive) matching(name *regexp.Regexp) []*zip.File {
	var parts []*zip.File
	for _, f := range a.zip.File {
		if name.MatchString(f.Name) {
			parts = append(parts, f)
		}
	}
	number := func(f *zip.File) int {
		n, _ := strconv.Atoi(name.FindStringSubmatch(f.Name)[1])
		return n
	}
	slices.SortStableFunc(parts, func(x, y *zip.File) int { return number(x) - number(y) })
	return parts
}

// read calls each for the tokens of a part.
func (a *archive) read(f *zip.File, each func(xml.Token) error) error {
	r, err := f.Open()
	if err != nil {
		return invalid("A part of the file could not be read: %v.", err)
	}
	defer r.Close()
	d := xml.NewDecoder(budget{r, a})
	d.Strict = false
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	for {
		token, err := d.RawToken()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errUnpacked):
			return errUnpacked
		case err != nil:
			return invalid("A part of the file could not be read: %v.", err)
		}
		if err := each(token); err != nil {
			return err
		}
	}
}

var (
	docxParts  = regexp.MustCompile(`^word/(?:document|footnotes|endnotes|comments)(\d*)\.xml$`)
	pptxParts  = regexp.MustCompile(`^ppt/(?:slides/slide|notesSlides/notesSlide)(\d+)\.xml$`)
	sheetParts = regexp.MustCompile(`^xl/worksheets/sheet(\d+)\.xml$`)
	sharedPart = regexp.MustCompile(`^xl/sharedStrings(\d*)\.xml$`)
)

func readDOCX(content []byte, out *text) error { return readRuns(content, docxParts, out) }
func readPPTX(content []byte, out *text) error { return readRuns(content, pptxParts, out) }

// readRuns reads the runs of text of the parts, a line for each paragraph.
func readRuns(content []byte, names *regexp.Regexp, out *text) error {
	a, err := openArchive(content)
	if err != nil {
		return err
	}
	parts := a.matching(names)
	if len(parts) == 0 {
		return invalid("The file is not a document of its type: it has no text part.")
	}
	for _, part := range parts {
		inText := false
		err := a.read(part, func(t xml.Token) error {
			switch t := t.(type) {
			case xml.StartElement:
				inText = t.Name.Local == "t"
				switch t.Name.Local {
				case "tab":
					return out.add("\t")
				case "br", "cr":
					return out.add("\n")
				}
			case xml.EndElement:
				inText = false
				switch t.Name.Local {
				case "p":
					return out.add("\n")
				case "tc":
					return out.add("\t")
				}
			case xml.CharData:
				if inText {
					return out.add(string(t))
				}
			}
			return nil
		})
		if err == nil {
			err = out.add("\n")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readXLSX reads the cells of all sheets, a line for each row.
func readXLSX(content []byte, out *text) error {
	a, err := openArchive(content)
	if err != nil {
		return err
	}
	sheets := a.matching(sheetParts)
	if len(sheets) == 0 {
		return invalid("The file is not a workbook: it has no sheet.")
	}
	var shared []string
	for _, part := range a.matching(sharedPart) {
		if shared, err = a.sharedStrings(part); err != nil {
			return err
		}
	}
	for _, sheet := range sheets {
		if err := a.readSheet(sheet, shared, out); err != nil {
			return err
		}
	}
	return nil
}

// sharedStrings returns the strings to which cells refer by number.
func (a *archive) sharedStrings(part *zip.File) (shared []string, err error) {
	var current strings.Builder
	inText := false
	err = a.read(part, func(t xml.Token) error {
		switch t := t.(type) {
		case xml.StartElement:
			inText = t.Name.Local == "t"
			if t.Name.Local == "si" {
				current.Reset()
			}
		case xml.EndElement:
			inText = false
			if t.Name.Local == "si" {
				shared = append(shared, current.String())
			}
		case xml.CharData:
			if inText {
				current.Write(t)
			}
		}
		return nil
	})
	return shared, err
}

func (a *archive) readSheet(sheet *zip.File, shared []string, out *text) error {
	var kind string
	inValue := false
	return a.read(sheet, func(t xml.Token) error {
		switch t := t.(type) {
		case xml.StartElement:
			inValue = t.Name.Local == "v" || t.Name.Local == "t"
			if t.Name.Local == "c" {
				kind = ""
				for _, attr := range t.Attr {
					if attr.Name.Local == "t" {
						kind = attr.Value
					}
				}
			}
		case xml.EndElement:
			inValue = false
			switch t.Name.Local {
			case "c":
				return out.add("\t")
			case "row":
				return out.add("\n")
			}
		case xml.CharData:
			if !inValue {
				return nil
			}
			if n, err := strconv.Atoi(string(t)); kind == "s" && err == nil && n >= 0 && n < len(shared) {
				return out.add(shared[n])
			}
			return out.add(string(t))
		}
		return nil
	})
}
