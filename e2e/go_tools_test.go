package e2e

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// toolTask returns a request to the scripted model, which calls a tool with each arguments.
func toolTask(tool responses.ToolUnionParam, function string, arguments ...string) responses.ResponseNewParams {
	var input strings.Builder
	for _, a := range arguments {
		input.WriteString("```json " + function + "\n" + a + "\n```\n")
	}
	return responses.ResponseNewParams{Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(input.String())},
		Tools: []responses.ToolUnionParam{tool}}
}

// citations returns the annotations of a response's message.
func citations(r *responses.Response) []responses.ResponseOutputTextAnnotationUnion {
	return r.Output[len(r.Output)-1].AsMessage().Content[0].AsOutputText().Annotations
}

// TestGoTools uses the tools that Berth runs, and what belongs to them, with the official Go
// client.
func TestGoTools(t *testing.T) {
	used := newServices(t)
	s := used.server(t)
	c := s.client()
	upload := func(t *testing.T, name, text string, purpose openai.FilePurpose) string {
		t.Helper()
		f, err := c.Files.New(t.Context(), openai.FileNewParams{File: openai.File(strings.NewReader(text), name,
			"text/plain"), Purpose: purpose})
		if err != nil {
			t.Fatal(err)
		}
		return f.ID
	}

	t.Run("code_interpreter: state, streamed", func(t *testing.T) {
		first, _ := runCode(t, s, "", "x = 41")
		stream := c.Responses.NewStreaming(t.Context(), codeTask(first.ID, "x + 1"))
		var code string
		var last responses.ResponseStreamEventUnion
		for stream.Next() {
			if last = stream.Current(); last.Type == "response.code_interpreter_call_code.delta" {
				code += last.Delta
			}
		}
		if all := cells(t, &last.Response); stream.Err() != nil || code != "x + 1\n" || len(all) != 1 ||
			all[0].logs() != "42" {
			t.Errorf("code %q, calls %+v, %v", code, all, stream.Err())
		}
	})

	t.Run("vector store: files, batch, search; file_search with a citation", func(t *testing.T) {
		store, err := c.VectorStores.New(t.Context(), openai.VectorStoreNewParams{Name: openai.String("harbour")})
		if err != nil {
			t.Fatal(err)
		}
		tides := upload(t, "tides.md", "High water is at noon.", openai.FilePurposeAssistants)
		one, err := c.VectorStores.Files.NewAndPoll(t.Context(), store.ID,
			openai.VectorStoreFileNewParams{FileID: tides}, 50)
		if err != nil || one.Status != "completed" {
			t.Fatalf("got %+v, %v", one, err)
		}
		batch, err := c.VectorStores.FileBatches.NewAndPoll(t.Context(), store.ID,
			openai.VectorStoreFileBatchNewParams{FileIDs: []string{upload(t, "ships.md", "Seven ships are due.",
				openai.FilePurposeAssistants)}}, 50)
		if err != nil || batch.FileCounts.Completed != 1 {
			t.Fatalf("got %+v, %v", batch, err)
		}
		page, err := c.VectorStores.Search(t.Context(), store.ID,
			openai.VectorStoreSearchParams{Query: openai.VectorStoreSearchParamsQueryUnion{OfString: openai.String(
				"high water")}})
		if err != nil || len(page.Data) != 1 || page.Data[0].FileID != tides {
			t.Fatalf("got %+v, %v", page, err)
		}
		task := toolTask(
			responses.ToolUnionParam{OfFileSearch: &responses.FileSearchToolParam{VectorStoreIDs: []string{store.ID}}},
			"file_search", `{"queries":["ships due"]}`)
		task.Include = []responses.ResponseIncludable{responses.ResponseIncludableFileSearchCallResults}
		r, err := c.Responses.New(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Output[0].AsFileSearchCall(); got.Results[0].Filename != "ships.md" ||
			got.Results[0].Text != "Seven ships are due." {
			t.Errorf("results %s", got.RawJSON())
		}
		if cited := citations(r); len(cited) != 1 || cited[0].Type != "file_citation" ||
			cited[0].AsFileCitation().Filename != "ships.md" {
			t.Errorf("citations %+v", cited)
		}
	})

	t.Run("mcp: approved and called", func(t *testing.T) {
		tool := responses.ToolUnionParam{OfMcp: &responses.ToolMcpParam{ServerLabel: "tides",
			ServerURL: openai.String(used.mcp.URL),
			RequireApproval: responses.ToolMcpRequireApprovalUnionParam{OfMcpToolApprovalSetting: openai.String(
				"always")}}}
		r, err := c.Responses.New(t.Context(), toolTask(tool, "tides__tide", `{"port":"Brest"}`))
		if err != nil {
			t.Fatal(err)
		}
		wanted := r.Output[len(r.Output)-1].AsMcpApprovalRequest()
		next := responses.ResponseNewParams{Model: "scripted", PreviousResponseID: openai.String(r.ID),
			Tools: []responses.ToolUnionParam{tool},
			Input: responses.ResponseNewParamsInputUnion{OfInputItemList: []responses.ResponseInputItemUnionParam{responses.ResponseInputItemParamOfMcpApprovalResponse(wanted.ID,
				true)}}}
		if r, err = c.Responses.New(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if call := r.Output[0].AsMcpCall(); call.Output != "high at noon in Brest" ||
			call.ApprovalRequestID != wanted.ID {
			t.Errorf("got %s", r.RawJSON())
		}
	})

	t.Run("web_search with a citation", func(t *testing.T) {
		tool := responses.ToolUnionParam{OfWebSearch: &responses.WebSearchToolParam{Type: responses.WebSearchToolTypeWebSearch}}
		r, err := c.Responses.New(t.Context(), toolTask(tool, "web_search", `{"type":"search","queries":["tides"]}`))
		if err != nil {
			t.Fatal(err)
		}
		if cited := citations(r); len(cited) != 1 || cited[0].AsURLCitation().URL != used.site.URL+"/tides" ||
			cited[0].AsURLCitation().Title != "Tides of Brest" {
			t.Errorf("citations %+v", cited)
		}
	})

	t.Run("upload in parts", func(t *testing.T) {
		up, err := c.Uploads.New(t.Context(), openai.UploadNewParams{Bytes: 8, Filename: "n.txt",
			MimeType: "text/plain", Purpose: openai.FilePurposeUserData})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, text := range []string{"calm ", "sea"} {
			part, err := c.Uploads.Parts.New(t.Context(), up.ID,
				openai.UploadPartNewParams{Data: openai.File(strings.NewReader(text), "part", "text/plain")})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, part.ID)
		}
		if up, err = c.Uploads.Complete(t.Context(), up.ID, openai.UploadCompleteParams{PartIDs: ids}); err != nil {
			t.Fatal(err)
		}
		content, err := c.Files.Content(t.Context(), up.File.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer content.Body.Close()
		if text, err := io.ReadAll(content.Body); err != nil || string(text) != "calm sea" {
			t.Errorf("got %q, %v", text, err)
		}
	})

	t.Run("batch of responses", func(t *testing.T) {
		input := upload(t, "in.jsonl",
			`{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"calm"}}`,
			openai.FilePurposeBatch)
		b, err := c.Batches.New(t.Context(),
			openai.BatchNewParams{CompletionWindow: openai.BatchNewParamsCompletionWindow24h,
				Endpoint: openai.BatchNewParamsEndpointV1Responses, InputFileID: input})
		if err != nil {
			t.Fatal(err)
		}
		s.waitUntil("the batch has ended", func() bool {
			b = batchEnd(t, s, b.ID)
			return b.Status == openai.BatchStatusCompleted || b.Status == openai.BatchStatusFailed
		})
		var line struct {
			CustomID string `json:"custom_id"`
			Response struct{ Body responses.Response }
		}
		if err := json.Unmarshal([]byte(fileLines(t, c, b.OutputFileID)[0]), &line); err != nil ||
			line.CustomID != "a" || line.Response.Body.OutputText() != "calm" {
			t.Errorf("got %+v, %v", line, err)
		}
	})

	t.Run("embeddings", func(t *testing.T) {
		r, err := c.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: embedder,
			Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"calm sea", "storm"}}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]float64{{8, 2}, {5, 1}}, [][]float64{r.Data[0].Embedding,
			r.Data[1].Embedding}); diff != "" {
			t.Errorf("vectors (-want +got):\n%s", diff)
		}
	})
}
