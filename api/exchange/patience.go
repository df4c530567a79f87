package exchange

import (
	"io"
	"net/http"
	"time"
)

// A patientReader fails if the client sends nothing for longer than patience.
type patientReader struct {
	in       io.Reader
	control  *http.ResponseController
	patience time.Duration
}

func (p *patientReader) Read(b []byte) (int, error) {
	// Some connections have no deadlines. For these, the kernel's keep-alive detects a
	// client that has vanished.
	_ = p.control.SetReadDeadline(time.Now().Add(p.patience))
	n, err := p.in.Read(b)
	if err != nil {
		// The server continues to read, to detect the end of the connection.
		_ = p.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// A PatientWriter fails if the client reads nothing for longer than patience.
type PatientWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// Patient returns a writer of the answer that fails if the client does not read. The caller
// must call Renew after the last write.
func (x *Exchange) Patient() *PatientWriter {
	return &PatientWriter{x, http.NewResponseController(x), x.server.Limits.Patience}
}

// Unwrap is called by http.ResponseController.
func (p *PatientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write writes b in pieces. The deadline applies to each piece.
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

// Renew restarts the deadline for the client. The server clears it after each request.
func (p *PatientWriter) Renew() { _ = p.control.SetWriteDeadline(time.Now().Add(p.patience)) }
