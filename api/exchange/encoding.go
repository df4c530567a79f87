package exchange

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// maxWindow is the maximum window of a zstd body in bytes. It limits the decoder's memory.
const maxWindow = 8 << 20

// decoded returns a reader of in that removes the request's content encoding: gzip, zstd or
// identity. Reads fail for any other encoding. The caller limits both readers.
func decoded(r *http.Request, in io.Reader) io.Reader {
	switch encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return in
	case "gzip", "x-gzip":
		return &lazyReader{open: func() (io.Reader, error) { return gzip.NewReader(in) }}
	case "zstd":
		return &lazyReader{open: func() (io.Reader, error) {
			return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
				zstd.WithDecoderLowmem(true))
		}}
	default:
		return &lazyReader{open: func() (io.Reader, error) {
			return nil, berth.Errorf(berth.CodeUnsupportedMedia,
				"The content encoding '%s' is not supported. Send the body with gzip, with zstd or without an encoding.",
				rule.Clip(encoding))
		}}
	}
}

// A lazyReader opens its source at the first Read.
type lazyReader struct {
	open func() (io.Reader, error)
	in   io.Reader
	err  error
}

func (l *lazyReader) Read(p []byte) (int, error) {
	if l.in == nil && l.err == nil {
		l.in, l.err = l.open()
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.in.Read(p)
}
