package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/store/sqlite"
)

func newCarrier(t testing.TB) *Service {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	j := journal.New(db)
	e := engine.New(engine.Options{Responses: db, Runs: db, Objects: db, Journal: j, Owner: "test", Usages: db,
		Log: slog.New(slog.DiscardHandler)})
	return New(Options{Responses: db, Containers: db, Objects: db, Engine: e, Journal: j,
		Files: files.New(files.Options{Store: db, Contents: blobtest.New(t)}), SpoolDir: t.TempDir()})
}

const (
	someResponse = "resp_0123456789abcdef0123456789abcdef0123456789abcdef"
	someFile     = "file-0123456789abcdef0123456789abcdef0123456789abcdef"
	goodDocument = `{"body":{"id":"` + someResponse + `","object":"response","created_at":1,"status":"completed","model":"m","output":[]},
		"request":{"model":"m","input":"x"},"input":[{"type":"message","role":"user","content":[{"type":"input_file","file_id":"` + someFile + `"}]}],
		"events":[{"type":"response.created","sequence_number":0},{"type":"response.completed","sequence_number":1,"response":{"id":"` + someResponse + `","status":"completed"}}]}`
)

// packed returns a bundle of two responses and a file, with the digests that are right.
func packed(t testing.TB, change func(*Manifest), first, second, content string) []byte {
	entry := func(path, id, body string) ManifestEntry {
		sum := sha256.Sum256([]byte(body))
		return ManifestEntry{Path: path, ID: id, Digest: "sha256:" + hex.EncodeToString(sum[:]),
			Bytes: int64(len(body))}
	}
	m := Manifest{Format: Format, Responses: []ManifestEntry{entry("responses/00001.json", someResponse, first),
		entry("responses/00002.json", "resp_2", second)},
		Files: []ManifestFile{{Filename: "a.txt", Purpose: "user_data", ManifestEntry: entry("files/"+someFile,
			someFile, content)}}}
	change(&m)
	manifest, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range [][2]string{{"manifest.json", string(manifest)}, {"responses/00001.json", first},
		{"responses/00002.json", second}, {"files/" + someFile, content}} {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o600, Size: int64(len(f[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func as(doc, id string) string { return strings.ReplaceAll(doc, "_0123456789", "_"+id) }

// An imported bundle can be exported and imported again; an invalid one is refused in
// the client's words, and leaves nothing.
func FuzzImport(f *testing.F) {
	second := as(goodDocument, "1111111111")
	f.Add(goodDocument, second, "content", "a.txt", 0)
	f.Add(goodDocument, goodDocument, "", "a.txt", 0)
	f.Add(goodDocument, `null`, "", "../a", 1)
	f.Add(`{"body":null,"request":null,"input":null,"events":[{"type":"response.completed"}]}`, second, "", "a.txt", 2)
	f.Add(strings.ReplaceAll(goodDocument, `"output":[]`,
		`"output":[{"type":"reasoning","id":"rs_1","encrypted_content":"x"}]`), second, "", "a.txt", 3)
	f.Add(strings.ReplaceAll(goodDocument, `"response":{`, `"answer":{`), second, "", "a.txt", 0)
	f.Fuzz(func(t *testing.T, first, second, content, filename string, spoil int) {
		c := newCarrier(t)
		bundle := packed(t, func(m *Manifest) {
			m.Files[0].Filename = filename
			switch spoil {
			case 1:
				m.Responses[0].Bytes = 1 << 60
			case 2:
				m.Responses[1].Bytes = -1
			case 3:
				m.Files[0].Digest = m.Responses[0].Digest
			}
		}, first, second, content)
		caller := berth.Caller{Project: "proj_1", Key: "key_1"}
		done, err := c.Import(t.Context(), caller, bytes.NewReader(bundle))
		if err != nil {
			if code := berth.ErrorCode(err); code != berth.CodeInvalid && code != berth.CodeTooLarge {
				t.Errorf("got %s: %v", code, err)
			}
			return
		}
		var out bytes.Buffer
		x, err := c.Export(t.Context(), caller.Project, done.ResponseID, true)
		if err != nil {
			t.Fatalf("exporting what was imported: %v", err)
		}
		defer x.Close()
		if _, err := x.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Import(t.Context(), caller, &out); err != nil {
			t.Errorf("importing what was exported: %v", err)
		}
	})
}

// A bundle whose manifest exceeds the limits is refused before it is read.
func TestImportOfTooMuch(t *testing.T) {
	c := newCarrier(t)
	for name, change := range map[string]func(*Manifest){
		"a response": func(m *Manifest) { m.Responses[0].Bytes = maxResponse + 1 },
		"all responses": func(m *Manifest) {
			for range maxDocuments/maxResponse + 1 {
				m.Responses = append(m.Responses, ManifestEntry{Bytes: maxResponse})
			}
		},
		"responses": func(m *Manifest) { m.Responses = make([]ManifestEntry, maxResponses+1) },
		"none":      func(m *Manifest) { m.Responses = nil },
	} {
		_, err := c.Import(t.Context(), berth.Caller{Project: "proj_1"}, bytes.NewReader(packed(t, change, goodDocument,
			goodDocument, "")))
		if berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
