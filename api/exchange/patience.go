package exchange

import (
	"io"
	"net/http"
	"time"
)

// A patientReader fails when the client sends nothing for longer than patience.
type patientReader struct {
	in       io.Reader
	control  *http.ResponseController
	patience time.Duration
}

func (p *patientReader) Read(b []byte) (int, error) {
	// Not every connection has deadlines; without, the kernel's keep-alive finds
	// a client that has vanished.
	_ = p.control.SetReadDeadline(time.Now().Add(p.patience))
	n, err := p.in.Read(b)
	if err != nil {
		// The server goes on reading, to notice when the client leaves.
		_ = p.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// A PatientWriter fails when the client reads nothing for longer than patience.
type PatientWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// Patient returns a writer of the answer that gives up on a client which does not read.
// Renew must be called after the last write.
func (x *Exchange) Patient() *PatientWriter {
	return &PatientWriter{x, http.NewResponseController(x), x.server.Limits.Patience}
}

// Unwrap serves http.ResponseController.
func (p *PatientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write gives the client its time for each piece of b, not for all of it.
func (p *PatientWriter) Write(b []byte) (int, error) {
	const piece = 32 << 10
	written := 0
	for {
		p.Renew()
		n, err := p.ResponseWriter.Write(b[written:min(written+piece, len(b))])
		written += n
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

// Renew starts the client's time again. The server lifts the deadline after each
// request.
func (p *PatientWriter) Renew() { _ = p.control.SetWriteDeadline(time.Now().Add(p.patience)) }
