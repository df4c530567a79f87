package sqlite

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/berth-run/berth/store/sqlite/query"
)

// The pages of the file, as a table that SQLite offers.
const (
	countPages = "PRAGMA page_count"
	readPage   = "SELECT data FROM sqlite_dbpage WHERE pgno = ?"
	writePage  = "UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?"
)

const (
	// maxPages is up to where the first byte tells a page of a tree from others,
	// which begin with a page number. It is 128 GB.
	maxPages = 1 << 25
	// gapBatch is how many pages are cleared in one transaction.
	gapBatch = 64
)

// clearGaps clears the gaps of all pages. Pages that change meanwhile do no harm:
// SQLite never copies a gap, so no new trace is made of what is deleted already.
func (e *eraser) clearGaps(ctx context.Context) error {
	var pages int64
	if err := e.read.QueryRowContext(ctx, countPages).Scan(&pages); err != nil {
		return err
	}
	if pages > maxPages {
		return fmt.Errorf("it has more than %d pages", maxPages)
	}
	read, err := e.read.PrepareContext(ctx, readPage)
	if err != nil {
		return err
	}
	defer read.Close()
	var dirty []int64
	for n := int64(1); n <= pages; n++ {
		var page []byte
		if err := read.QueryRowContext(ctx, n).Scan(&page); err != nil {
			return err
		}
		if clearGap(page, n) {
			dirty = append(dirty, n)
		}
		if len(dirty) == gapBatch || n == pages {
			if err := e.clearPages(ctx, dirty); err != nil {
				return err
			}
			dirty = dirty[:0]
		}
	}
	return nil
}

// clearPages clears the gaps of some pages, as they are by now.
func (e *eraser) clearPages(ctx context.Context, pages []int64) error {
	if len(pages) == 0 {
		return nil
	}
	return e.writer.update(ctx, func(ctx context.Context, _ *query.Queries) error {
		for _, n := range pages {
			var page []byte
			if err := e.writer.conn.QueryRowContext(ctx, readPage, n).Scan(&page); err != nil {
				return err
			}
			if !clearGap(page, n) {
				continue
			}
			if _, err := e.writer.conn.ExecContext(ctx, writePage, page, n); err != nil {
				return err
			}
		}
		return nil
	})
}

// clearGap overwrites with zeros what a page of a tree has between the offsets of
// its cells, which grow from the front, and the cells, which grow from the back.
// It reports whether there was something. Other pages, and any that do not make
// sense, are left as they are. The layout is in https://sqlite.org/fileformat2.html.
func clearGap(page []byte, number int64) bool {
	header := 0
	if number == 1 {
		header = 100 // the file's own
	}
	if len(page) < header+12 {
		return false
	}
	var size int
	switch page[header] {
	case 0x02, 0x05: // inside a tree
		size = 12
	case 0x0a, 0x0d: // a leaf
		size = 8
	default:
		return false
	}
	cells := int(binary.BigEndian.Uint16(page[header+3:]))
	from := header + size + 2*cells
	to := int(binary.BigEndian.Uint16(page[header+5:]))
	if to == 0 {
		to = 1 << 16
	}
	if to > len(page) || from >= to {
		return false
	}
	gap := page[from:to]
	for _, b := range gap {
		if b != 0 {
			clear(gap)
			return true
		}
	}
	return false
}
