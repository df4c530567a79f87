package bundle

import (
	"io"

	"github.com/berth-run/berth/internal/seal"
)

// documents are the responses of a bundle in an encrypted temporary file, so that a long
// chain takes no memory. All are added before the first is read.
type documents struct {
	spool *seal.Spool
	ends  []int64
}

func newDocuments(dir string) (*documents, error) {
	s, err := seal.NewSpool(dir)
	return &documents{spool: s}, err
}

// add appends a document.
func (d *documents) add(r io.Reader) error {
	_, err := io.Copy(d.spool, r)
	d.ends = append(d.ends, d.spool.Size())
	return err
}

// open returns a reader of one document.
func (d *documents) open(i int) (io.Reader, error) {
	start := int64(0)
	if i > 0 {
		start = d.ends[i-1]
	}
	all, err := d.spool.Content()
	if err != nil {
		return nil, err
	}
	if _, err := all.Seek(start, io.SeekStart); err != nil {
		return nil, err
	}
	return io.LimitReader(all, d.ends[i]-start), nil
}

func (d *documents) read(i int) ([]byte, error) {
	r, err := d.open(i)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func (d *documents) Close() error { return d.spool.Close() }
