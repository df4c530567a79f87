package exchange

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// JSON answers with a value that marshals. An error in writing means that the client has
// gone, and is dropped.
func (x *Exchange) JSON(status int, v any) error { return WriteJSON(x, status, v) }

// WriteJSON is Exchange.JSON where there is no exchange to hand.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, ok := v.(json.RawMessage) // from the store, as it is sent
	if !ok {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return err
		}
	}
	writePieces(w, status, body)
	return nil
}

// Pieces answers with JSON in several pieces.
func (x *Exchange) Pieces(status int, pieces ...[]byte) { writePieces(x, status, pieces...) }

func writePieces(w http.ResponseWriter, status int, pieces ...[]byte) {
	size := 0
	for _, piece := range pieces {
		size += len(piece)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
	deliver(w, pieces...)
}

// deliver writes a body. It gives up on a client that does not read it.
func deliver(w http.ResponseWriter, pieces ...[]byte) {
	out := io.Writer(w)
	if x, ok := w.(*Exchange); ok && x.server.Limits.Patience > 0 {
		patient := x.Patient()
		defer patient.Renew() // the last bytes leave after the handler
		out = patient
	}
	for _, piece := range pieces {
		if _, err := out.Write(piece); err != nil {
			return
		}
	}
}

// Download answers with the bytes of a file of this name and size; a negative size is
// unknown. A browser stores the file, whatever its type, and does not run it. Ranges
// work where content can seek.
func (x *Exchange) Download(r *http.Request, name string, size int64, content io.Reader) error {
	h := x.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", Attachment(name))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	out := x.Patient()
	defer out.Renew() // the last bytes leave after the handler
	if seeker, ok := content.(io.ReadSeeker); ok {
		http.ServeContent(out, r, "", time.Time{}, seeker)
		return nil
	}
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	x.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(out, content); err != nil {
		x.Abort(err)
	}
	return nil
}

// Attachment returns the Content-Disposition of a file that a browser is to store.
func Attachment(name string) string {
	if v := mime.FormatMediaType("attachment", map[string]string{"filename": name}); v != "" {
		return v
	}
	return "attachment"
}
