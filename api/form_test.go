package api

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/files"
)

// A part of a form: name, file name (none for a field) and value.
type part struct{ name, filename, value string }

// multipartBody writes a form as a client does. cut leaves its end out.
func multipartBody(cut bool, parts ...part) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "--edge\r\nContent-Disposition: form-data; name=\"%s\"", p.name)
		if p.filename != "" {
			fmt.Fprintf(&b, "; filename=\"%s\"\r\nContent-Type: text/html", p.filename)
		}
		fmt.Fprintf(&b, "\r\n\r\n%s\r\n", p.value)
	}
	if !cut {
		b.WriteString("--edge--\r\n")
	}
	return b.String()
}

func formRequest(body string) *http.Request {
	r := httptest.NewRequest("POST", "http://localhost/v1/files", strings.NewReader(body))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=edge")
	r.RemoteAddr = "127.0.0.1:5"
	return r
}

// readFileForm reads a form of POST /v1/files as its handler does.
func readFileForm(r *http.Request) (req files.CreateRequest, content string, err error) {
	err = decoded(r, exchange.Limits{}, func(x *exchange.Exchange, r *http.Request) error {
		f, err := x.Form(r, "purpose", "expires_after[anchor]", "expires_after[seconds]")
		if err != nil {
			return err
		}
		data, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		content = string(data)
		req, err = fileRequest(f)
		return err
	})
	return req, content, err
}

func TestForm(t *testing.T) {
	t.Parallel()
	file, purpose := part{"file", "a b.csv", "1,2\r\n--edg\r\n"}, part{"purpose", "", "user_data"}
	anchor, seconds := part{"expires_after[anchor]", "", "created_at"}, part{"expires_after[seconds]", "", "3600"}
	for name, parts := range map[string][]part{
		"the file first": {file, purpose, anchor, seconds}, "the file last": {seconds, anchor, purpose, file},
		"the file between": {purpose, file, seconds, anchor},
	} {
		t.Run(name, func(t *testing.T) {
			req, data, err := readFileForm(formRequest(multipartBody(false, parts...)))
			want := files.CreateRequest{Filename: "a b.csv", Purpose: "user_data", ExpiresAfterSeconds: 3600}
			if diff := cmp.Diff(want, req); err != nil || diff != "" || data != file.value {
				t.Errorf("got %q, %v, want %q; request (-want +got):\n%s", data, err, file.value, diff)
			}
		})
	}
	if req, data, err := readFileForm(formRequest(multipartBody(false, purpose,
		part{"file", "empty", ""}))); err != nil || data != "" || req.Filename != "empty" {
		t.Errorf("an empty file: got %+v, %q, %v, want it taken", req, data, err)
	}
}

func TestFormErrors(t *testing.T) {
	t.Parallel()
	file, purpose := part{"file", "a.csv", "123456"}, part{"purpose", "", "user_data"}
	with := func(more ...part) string { return multipartBody(false, append([]part{purpose, file}, more...)...) }
	tests := []struct{ name, body, message, param string }{
		{"nothing", "--edge--\r\n", "Missing required parameter: 'file'.", "file"},
		{"no file", multipartBody(false, purpose), "Missing required parameter: 'file'.", "file"},
		{"no purpose", multipartBody(false, file), "Missing required parameter: 'purpose'.", "purpose"},
		{"purpose", multipartBody(false, file, part{"purpose", "", "fun"}),
			"Invalid value: 'fun'. Supported values are: 'assistants', 'batch', 'fine-tune', 'vision', 'user_data', and 'evals'.",
			"purpose"},
		{"unknown field before", multipartBody(false, part{"color", "", "red"}, purpose, file),
			"Unknown parameter: 'color'.", "color"},
		{"unknown field after", with(part{"color", "", "red"}), "Unknown parameter: 'color'.", "color"},
		{"two files", with(file), "Duplicate parameter: 'file'.", "file"},
		{"two purposes", with(purpose), "Duplicate parameter: 'purpose'.", "purpose"},
		{"a long field", with(part{"expires_after[anchor]", "", strings.Repeat("x", 64<<10+1)}),
			"Invalid 'expires_after[anchor]': string too long. Expected a string of at most 65536 bytes.",
			"expires_after[anchor]"},
		{"half an expiry", with(part{"expires_after[anchor]", "", "created_at"}),
			"Missing required parameter: 'expires_after.seconds'.", "expires_after.seconds"},
		{"the other half", with(part{"expires_after[seconds]", "", "3600"}),
			"Missing required parameter: 'expires_after.anchor'.", "expires_after.anchor"},
		{"anchor", with(part{"expires_after[anchor]", "", "now"}, part{"expires_after[seconds]", "", "3600"}),
			"Invalid value: 'now'. Supported values are: 'created_at'.", "expires_after.anchor"},
		{"seconds", with(part{"expires_after[anchor]", "", "created_at"}, part{"expires_after[seconds]", "", "9"}),
			"Invalid 'expires_after.seconds': integer below minimum value. Expected a value >= 3600, but got 9 instead.",
			"expires_after.seconds"},
		{"seconds of a wrong type", with(part{"expires_after[anchor]", "", "created_at"},
			part{"expires_after[seconds]", "", "soon"}),
			"Invalid type for 'expires_after.seconds': expected an integer, but got 'soon' instead.",
			"expires_after.seconds"},
		{"cut in the file", multipartBody(true, purpose, file)[:150], "The multipart body is malformed or incomplete.",
			""},
		{"cut after the file", multipartBody(true, purpose, file), "The multipart body is malformed or incomplete.",
			""},
		{"a field where the file should be", multipartBody(false, part{"file", "", "x"}),
			"Missing required parameter: 'file.filename'.", "file.filename"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := readFileForm(formRequest(tt.body))
			if got := clientError(t, err); got.Message != tt.message || got.Param != nil != (tt.param != "") ||
				got.Param != nil && *got.Param != tt.param {
				t.Errorf("got %+v (param %v), want %s (%s)", got, got.Param, tt.message, tt.param)
			}
		})
	}
	r := formRequest(with())
	r.Header.Set("Content-Type", "application/json")
	if _, _, err := readFileForm(r); clientError(t,
		err).Message != "The request body must be multipart/form-data. Send it with the header 'Content-Type: multipart/form-data'." {
		t.Errorf("JSON: got %v, want it refused", err)
	}
}

// Any form is read completely and in order, or refused with an error for the client.
func FuzzForm(f *testing.F) {
	f.Add(multipartBody(false, part{"purpose", "", "user_data"}, part{"file", "a", "x"}))
	f.Add(multipartBody(true, part{"file", "../a", "x"}))
	f.Add("--edge\r\nContent-Disposition: form-data; name=file; filename*=utf-8''%2e%2e%2fa\r\n\r\nx\r\n--edge--")
	f.Fuzz(func(t *testing.T, body string) {
		req, data, err := readFileForm(formRequest(body))
		if err != nil {
			clientError(t, err)
		} else if !strings.Contains(body, data) || req.Filename == "" {
			t.Errorf("got %q named %q", data, req.Filename)
		}
	})
}

// A read after the end returns io.EOF again.
func TestFormPieces(t *testing.T) {
	t.Parallel()
	const piece = 256 << 10
	for size := range map[int]bool{0: true, 1: true, piece - 1: true, piece: true, piece + 1: true, 3 * piece: true} {
		form := formRequest(multipartBody(false, part{"file", "a", strings.Repeat("x", size)}))
		err := decoded(form, exchange.Limits{}, func(x *exchange.Exchange, r *http.Request) error {
			f, err := x.Form(r)
			if err != nil {
				return err
			}
			n, buf := 0, make([]byte, piece)
			for err == nil {
				var m int
				m, err = io.ReadFull(f, buf)
				n += m
			}
			if _, again := f.Read(buf); n != size || err != io.EOF && err != io.ErrUnexpectedEOF || again != io.EOF {
				t.Errorf("got %d bytes, %v, and then %v, want %d and the end", n, err, again, size)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
