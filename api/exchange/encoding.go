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

// maxWindow bounds the memory that a zstd body can make its decoder use, in bytes.
const maxWindow = 8 << 20

// decoded returns in without the content encoding that the request names: gzip, zstd or
// none. Reading it fails for any other. The caller bounds what is read of both.
func decoded(r *http.Request, in io.Reader) io.Reader {
	switch encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return in
	case "gzip", "x-gzip":
		return &lazyReader{open: func() (io.Reader, error) { return gzip.NewReader(in) }}
	case "zstd":
		return &lazyReader{open: func() (io.Reader, error) {
			return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		}}
	default:
		return &lazyReader{open: func() (io.Reader, error) {
			return nil, berth.Errorf(berth.CodeUnsupportedMedia, "The content encoding '%s' is not supported. Send the body as it is, or with gzip or zstd.", rule.Clip(encoding))
		}}
	}
}

// A lazyReader opens its source at the first Read, which is the first to need the body.
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
