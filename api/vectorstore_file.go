package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/vectorstore"
)

// A vectorFile is the body that adds a file to a vector store.
type vectorFile struct {
	FileID           berth.FileID            `json:"file_id"`
	ChunkingStrategy *berth.ChunkingStrategy `json:"chunking_strategy"`
	Attributes       berth.Attributes        `json:"attributes"`
}

// createFile serves POST /v1/vector_stores/{vector_store}/files.
func (h *vectorStores) createFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body vectorFile
	if err := x.Decode(r, vectorFileBody, &body); err != nil {
		return err
	}
	f, err := h.service.AddFile(r.Context(), c.Project, vectorStoreID(r), vectorstore.FileRequest(body))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, f)
}

// listFiles serves GET /v1/vector_stores/{vector_store}/files, and with a batch
// GET /v1/vector_stores/{vector_store}/file_batches/{batch}/files.
func (h *vectorStores) listFiles(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.PageBoth()
	status := q.OneOf("filter", berth.VectorInProgress, berth.VectorCompleted, berth.VectorFailed,
		berth.VectorCancelled)
	if err := q.End(); err != nil {
		return err
	}
	files, err := h.service.ListFiles(r.Context(), c.Project, vectorStoreID(r), batchID(r), status)
	if err != nil {
		return err
	}
	id := func(f *berth.VectorStoreFile) string { return string(f.ID) }
	data, more, err := exchange.PageOf(files, page, id)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, id))
}

// getFile serves GET /v1/vector_stores/{vector_store}/files/{file}.
func (h *vectorStores) getFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	f, err := h.service.File(r.Context(), c.Project, vectorStoreID(r), berth.FileID(r.PathValue("file")))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, f)
}

// updateFile serves POST /v1/vector_stores/{vector_store}/files/{file}.
func (h *vectorStores) updateFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Attributes berth.Attributes `json:"attributes"`
	}
	if err := x.Decode(r, vectorFileChange, &body); err != nil {
		return err
	}
	f, err := h.service.UpdateFile(r.Context(), c.Project, vectorStoreID(r), berth.FileID(r.PathValue("file")),
		body.Attributes)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, f)
}

// fileContent serves GET /v1/vector_stores/{vector_store}/files/{file}/content.
func (h *vectorStores) fileContent(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	texts, err := h.service.Content(r.Context(), c.Project, vectorStoreID(r), berth.FileID(r.PathValue("file")))
	if err != nil {
		return err
	}
	page := struct {
		Object   string        `json:"object"`
		Data     []textContent `json:"data"`
		HasMore  bool          `json:"has_more"`
		NextPage *string       `json:"next_page"`
	}{Object: "vector_store.file_content.page", Data: []textContent{}}
	for _, text := range texts {
		page.Data = append(page.Data, textContent{"text", text})
	}
	return x.JSON(http.StatusOK, page)
}

// deleteFile serves DELETE /v1/vector_stores/{vector_store}/files/{file}.
func (h *vectorStores) deleteFile(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := berth.FileID(r.PathValue("file"))
	if err := h.service.RemoveFile(r.Context(), c.Project, vectorStoreID(r), id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "vector_store.file.deleted"))
}

// createBatch serves POST /v1/vector_stores/{vector_store}/file_batches.
func (h *vectorStores) createBatch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		FileIDs          []berth.FileID          `json:"file_ids"`
		Files            []vectorFile            `json:"files"`
		ChunkingStrategy *berth.ChunkingStrategy `json:"chunking_strategy"`
		Attributes       berth.Attributes        `json:"attributes"`
	}
	if err := x.Decode(r, vectorBatchBody, &body); err != nil {
		return err
	}
	var files []vectorstore.FileRequest
	for _, f := range body.Files {
		files = append(files, vectorstore.FileRequest(f))
	}
	for _, id := range body.FileIDs {
		files = append(files, vectorstore.FileRequest{FileID: id, ChunkingStrategy: body.ChunkingStrategy,
			Attributes: body.Attributes})
	}
	b, err := h.service.CreateBatch(r.Context(), c.Project, vectorStoreID(r), files)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, b)
}

// getBatch serves GET /v1/vector_stores/{vector_store}/file_batches/{batch}.
func (h *vectorStores) getBatch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	b, err := h.service.Batch(r.Context(), c.Project, vectorStoreID(r), batchID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, b)
}

// cancelBatch serves POST /v1/vector_stores/{vector_store}/file_batches/{batch}/cancel.
func (h *vectorStores) cancelBatch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	b, err := h.service.CancelBatch(r.Context(), c.Project, vectorStoreID(r), batchID(r))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, b)
}

func batchID(r *http.Request) berth.FileBatchID { return berth.FileBatchID(r.PathValue("batch")) }
