package api_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
)

// client returns OpenAI's client of the server.
func (h *house) client() openai.Client {
	return openai.NewClient(option.WithBaseURL(h.url+"/v1/"), option.WithAPIKey(h.token), option.WithMaxRetries(0))
}

// OpenAI's client uploads a file in parts, which arrive in another order.
func TestUpload(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	client := h.client()
	pieces := []string{strings.Repeat("a", 100_000), "", "the end"}
	whole := strings.Join(pieces, "")
	u, err := client.Uploads.New(t.Context(), openai.UploadNewParams{Filename: "big.txt",
		Purpose: openai.FilePurposeUserData, MimeType: "text/plain", Bytes: int64(len(whole)),
		ExpiresAfter: openai.UploadNewParamsExpiresAfter{Seconds: 3600}})
	check(t, err)
	if u.Status != openai.UploadStatusPending || u.Bytes != int64(len(whole)) || u.ExpiresAt != u.CreatedAt+3600 {
		t.Errorf("got %s", u.RawJSON())
	}
	ids := make([]string, len(pieces))
	for _, i := range []int{2, 0, 1} {
		part, err := client.Uploads.Parts.New(t.Context(), u.ID,
			openai.UploadPartNewParams{Data: strings.NewReader(pieces[i])})
		check(t, err)
		ids[i] = part.ID
	}
	sum := md5.Sum([]byte(whole))
	for name, bad := range map[string]openai.UploadCompleteParams{
		"another order": {PartIDs: []string{ids[2], ids[1], ids[0]}, Md5: openai.String(hex.EncodeToString(sum[:]))},
		"too few":       {PartIDs: ids[1:]},
		"twice":         {PartIDs: []string{ids[0], ids[0], ids[1], ids[2]}},
		"unknown":       {PartIDs: []string{"part_none"}},
		"wrong sum":     {PartIDs: ids, Md5: openai.String(strings.Repeat("0", 32))},
	} {
		if _, err := client.Uploads.Complete(t.Context(), u.ID, bad); status(err) != http.StatusBadRequest {
			t.Errorf("%s: got %v, want 400", name, err)
		}
	}
	for range 2 { // the second is a repeated request
		u, err = client.Uploads.Complete(t.Context(), u.ID, openai.UploadCompleteParams{PartIDs: ids,
			Md5: openai.String(hex.EncodeToString(sum[:]))})
		check(t, err)
		if u.Status != openai.UploadStatusCompleted || u.File.Bytes != int64(len(whole)) ||
			u.File.Filename != "big.txt" || u.File.ExpiresAt != u.File.CreatedAt+3600 {
			t.Errorf("got %s", u.RawJSON())
		}
	}
	content, err := client.Files.Content(t.Context(), u.File.ID)
	check(t, err)
	if got, err := io.ReadAll(content.Body); err != nil || string(got) != whole {
		t.Errorf("the file has %d bytes, %v, want %d", len(got), err, len(whole))
	}
	if list := h.call(200, "GET", "/v1/files", nil); len(list["data"].([]any)) != 1 {
		t.Errorf("got files %v, want one", list)
	}
	if _, err := client.Uploads.Parts.New(t.Context(), u.ID,
		openai.UploadPartNewParams{Data: strings.NewReader("late")}); status(err) != http.StatusBadRequest {
		t.Errorf("a part after the end: got %v, want 400", err)
	}
	if _, err := client.Uploads.Cancel(t.Context(), u.ID); status(err) != http.StatusBadRequest {
		t.Errorf("cancel after the end: got %v, want 400", err)
	}
}

func TestUploadCancel(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	client := h.client()
	u, err := client.Uploads.New(t.Context(), openai.UploadNewParams{Filename: "a.txt",
		Purpose: openai.FilePurposeUserData, MimeType: "text/plain", Bytes: 1})
	check(t, err)
	part, err := client.Uploads.Parts.New(t.Context(), u.ID, openai.UploadPartNewParams{Data: strings.NewReader("a")})
	check(t, err)
	for range 2 {
		u, err = client.Uploads.Cancel(t.Context(), u.ID)
		check(t, err)
		if u.Status != openai.UploadStatusCancelled {
			t.Errorf("got %s", u.RawJSON())
		}
	}
	if _, err := client.Uploads.Complete(t.Context(), u.ID,
		openai.UploadCompleteParams{PartIDs: []string{part.ID}}); status(err) != http.StatusBadRequest {
		t.Errorf("complete after cancel: got %v, want 400", err)
	}
}

func TestUploadRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"too large":     {400, `{"filename":"a","purpose":"user_data","mime_type":"a/b","bytes":8589934593}`},
		"empty":         {400, `{"filename":"a","purpose":"user_data","mime_type":"a/b","bytes":0}`},
		"a path":        {400, `{"filename":"../a","purpose":"user_data","mime_type":"a/b","bytes":1}`},
		"a purpose":     {400, `{"filename":"a.jsonl","purpose":"batch_output","mime_type":"a/b","bytes":1}`},
		"not lines":     {400, `{"filename":"a.txt","purpose":"batch","mime_type":"a/b","bytes":1}`},
		"a large batch": {413, `{"filename":"a.jsonl","purpose":"batch","mime_type":"a/b","bytes":209715201}`},
		"no type":       {400, `{"filename":"a","purpose":"user_data","bytes":1}`},
		"expires at once": {400,
			`{"filename":"a","purpose":"user_data","mime_type":"a/b","bytes":1,"expires_after":{"anchor":"created_at","seconds":1}}`},
	} {
		t.Run(name, func(t *testing.T) { h.call(c.status, "POST", "/v1/uploads", c.body) })
	}
	id := h.call(200, "POST", "/v1/uploads", `{"filename":"a","purpose":"user_data","mime_type":"a/b","bytes":1}`).id()
	form, kind := multipartOf("data", "x", io.LimitReader(zeros{}, 64<<20+1))
	if e := h.call(400, "POST", "/v1/uploads/"+id+"/parts", form, kind); e.at("error", "param") != "data" {
		t.Errorf("a part larger than the upload: got %v", e)
	}
	large := h.call(200, "POST", "/v1/uploads",
		`{"filename":"a","purpose":"user_data","mime_type":"a/b","bytes":100000000}`).id()
	form, kind = multipartOf("data", "x", io.LimitReader(zeros{}, 64<<20+1))
	h.call(413, "POST", "/v1/uploads/"+large+"/parts", form, kind)
	form, kind = upload("x", strings.NewReader("a"))
	h.call(400, "POST", "/v1/uploads/"+id+"/parts", form, kind)
	h.call(400, "POST", "/v1/uploads/"+id+"/complete", `{"part_ids":[]}`)
	h.call(400, "POST", "/v1/uploads/"+id+"/complete", `{"part_ids":["part_a"],"md5":"../../../etc/passwd"}`)
	h.call(404, "POST", "/v1/uploads/upload_none/complete", `{"part_ids":["part_a"]}`)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Parts count as storage. A project whose parts fill its limit can still complete the upload,
// because the file replaces them.
func TestUploadQuota(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"": {StorageBytes: number(150_000)}})
	create := func(status int, bytes string) object {
		t.Helper()
		return h.call(status, "POST", "/v1/uploads",
			`{"filename":"a","purpose":"user_data","mime_type":"a/b","bytes":`+bytes+`}`)
	}
	create(429, "200000")
	id := create(200, "100000").id()
	form, kind := multipartOf("data", "x", bytes.NewReader(make([]byte, 100_000)))
	part := h.call(200, "POST", "/v1/uploads/"+id+"/parts", form, kind).id()
	form, kind = multipartOf("data", "x", bytes.NewReader(make([]byte, 100_000)))
	h.call(429, "POST", "/v1/uploads/"+id+"/parts", form, kind)
	form, kind = upload("b", bytes.NewReader(make([]byte, 100_000)), "purpose", "user_data")
	h.call(429, "POST", "/v1/files", form, kind)
	h.call(200, "POST", "/v1/uploads/"+id+"/complete", `{"part_ids":["`+part+`"]}`)
	form, kind = upload("b", bytes.NewReader(make([]byte, 10_000)), "purpose", "user_data")
	h.call(200, "POST", "/v1/files", form, kind)
}

// The purpose of a file determines its name, its size and its default expiry.
func TestFilePurposes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for _, purpose := range []string{"batch", "fine-tune"} {
		form, kind := upload("a.txt", strings.NewReader("{}"), "purpose", purpose)
		h.call(400, "POST", "/v1/files", form, kind)
	}
	form, kind := upload("a.jsonl", strings.NewReader("{}"), "purpose", "batch")
	if f := h.call(200, "POST", "/v1/files", form, kind); f.at("expires_at") != f.at("created_at").(float64)+30*24*3600 {
		t.Errorf("got %v, want an expiry after 30 days", f)
	}
	form, kind = upload("a.jsonl", io.LimitReader(zeros{}, 200<<20+1), "purpose", "batch")
	h.call(413, "POST", "/v1/files", form, kind)
	form, kind = upload("a.jsonl", strings.NewReader("{}"), "purpose", "batch_output")
	h.call(400, "POST", "/v1/files", form, kind)
}

// status returns the HTTP status of an error of OpenAI's client, or 0.
func status(err error) int {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return e.StatusCode
	}
	return 0
}
