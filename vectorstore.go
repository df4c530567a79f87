package berth

import (
	"bytes"
	"encoding/json"
)

// A VectorStore is a collection of files that the file_search tool searches.
type VectorStore struct {
	ID           VectorStoreID     `json:"id"`
	Object       string            `json:"object"` // "vector_store"
	CreatedAt    int64             `json:"created_at"`
	Name         string            `json:"name"`
	Description  string            `json:"description,omitempty"`
	UsageBytes   int64             `json:"usage_bytes"`
	FileCounts   FileCounts        `json:"file_counts"`
	Status       string            `json:"status"` // expired, in_progress or completed
	ExpiresAfter *VectorExpiry     `json:"expires_after,omitempty"`
	ExpiresAt    *int64            `json:"expires_at"`
	LastActiveAt *int64            `json:"last_active_at"`
	Metadata     map[string]string `json:"metadata"`
}

// The statuses of vector stores, their files and batches.
const (
	VectorInProgress = "in_progress"
	VectorCompleted  = "completed"
	VectorCancelled  = "cancelled"
	VectorFailed     = "failed"
	VectorExpired    = "expired" // stores only
)

// FileCounts are the files of a vector store or a batch by status.
type FileCounts struct {
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	Cancelled  int `json:"cancelled"`
	Total      int `json:"total"`
}

// Add counts a file of a status.
func (c *FileCounts) Add(status string) {
	c.Total++
	switch status {
	case VectorInProgress:
		c.InProgress++
	case VectorCompleted:
		c.Completed++
	case VectorFailed:
		c.Failed++
	case VectorCancelled:
		c.Cancelled++
	}
}

// VectorExpiry is the number of days without use after which a vector store expires.
type VectorExpiry struct {
	Anchor string `json:"anchor"` // "last_active_at"
	Days   int    `json:"days"`
}

// A VectorStoreFile is a file in a vector store.
type VectorStoreFile struct {
	ID               FileID            `json:"id"`
	Object           string            `json:"object"` // "vector_store.file"
	UsageBytes       int64             `json:"usage_bytes"`
	CreatedAt        int64             `json:"created_at"`
	VectorStoreID    VectorStoreID     `json:"vector_store_id"`
	Status           string            `json:"status"` // in_progress, completed, cancelled or failed
	LastError        *VectorStoreError `json:"last_error"`
	ChunkingStrategy *ChunkingStrategy `json:"chunking_strategy,omitempty"`
	Attributes       Attributes        `json:"attributes"`
}

// A VectorStoreError states why a file could not be added to a vector store.
type VectorStoreError struct {
	Code    string `json:"code"` // server_error, unsupported_file or invalid_file
	Message string `json:"message"`
}

// Attributes are up to 16 values of a file, which searches can filter by. A value is a
// string, a json.Number or a boolean, as decoded; use UnmarshalJSON.
type Attributes map[string]any

// UnmarshalJSON decodes numbers as json.Number.
func (a *Attributes) UnmarshalJSON(b []byte) error {
	var plain map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&plain); err != nil {
		return err
	}
	*a = plain
	return nil
}

// A ChunkingStrategy states how files are divided. "auto" is static with the defaults.
type ChunkingStrategy struct {
	Type   string          `json:"type"` // auto (in requests), or static
	Static *StaticChunking `json:"static,omitempty"`
}

// StaticChunking bounds the parts of a file in tokens.
type StaticChunking struct {
	MaxChunkSizeTokens int `json:"max_chunk_size_tokens"`
	ChunkOverlapTokens int `json:"chunk_overlap_tokens"`
}

// A FileBatch is a number of files that were added to a vector store together.
type FileBatch struct {
	ID            FileBatchID   `json:"id"`
	Object        string        `json:"object"` // "vector_store.files_batch"
	CreatedAt     int64         `json:"created_at"`
	VectorStoreID VectorStoreID `json:"vector_store_id"`
	Status        string        `json:"status"` // in_progress, completed, cancelled or failed
	FileCounts    FileCounts    `json:"file_counts"`
}

// RankingOptions state how search results are ranked.
type RankingOptions struct {
	Ranker         string        `json:"ranker,omitempty"` // auto, none or default-2024-11-15
	ScoreThreshold float64       `json:"score_threshold"`
	HybridSearch   *HybridSearch `json:"hybrid_search,omitempty"`
}

// HybridSearch weighs the two rankings that a hybrid search fuses.
type HybridSearch struct {
	EmbeddingWeight float64 `json:"embedding_weight"`
	TextWeight      float64 `json:"text_weight"`
}

// The searches that a FileSearchBerth names.
const (
	SearchBM25   = "bm25"   // by words
	SearchHybrid = "hybrid" // by words and vectors
	SearchVector = "vector" // by vectors, because the request gives words no weight
)

// SearchDegraded is the Degraded of a search whose embedding model failed.
const SearchDegraded = "The embedding model failed, so only words were searched."

// A FileSearchTool lets the model search vector stores.
type FileSearchTool struct {
	Type           string          `json:"type"` // "file_search"
	VectorStoreIDs []VectorStoreID `json:"vector_store_ids"`
	MaxNumResults  int             `json:"max_num_results,omitempty"`
	RankingOptions *RankingOptions `json:"ranking_options,omitempty"`
	Filters        json.RawMessage `json:"filters,omitempty"`
}

// A FileSearchCall is one search of vector stores and its results.
type FileSearchCall struct {
	ID      string             `json:"id"`
	Type    ItemType           `json:"type"`   // "file_search_call"
	Status  string             `json:"status"` // in_progress, searching, completed, incomplete or failed
	Queries []string           `json:"queries"`
	Results []FileSearchResult `json:"results"` // null unless the request includes them
	Berth   *FileSearchBerth   `json:"berth,omitempty"`
}

// FileSearchBerth extends OpenAI's file_search_call.
type FileSearchBerth struct {
	Search   string             `json:"search,omitempty"`   // bm25, hybrid or vector
	Degraded string             `json:"degraded,omitempty"` // why the search was by words only; see SearchDegraded
	Results  []FileSearchResult `json:"results,omitempty"`  // what the model was shown, if Results is null
	Error    string             `json:"error,omitempty"`    // of a failed search
}

// A FileSearchResult is a part of a file that a search found.
type FileSearchResult struct {
	Attributes Attributes `json:"attributes"`
	FileID     FileID     `json:"file_id"`
	Filename   string     `json:"filename"`
	Score      float64    `json:"score"` // from 0 to 1
	Text       string     `json:"text"`
}

// A FileCitation is the annotation of a text that cites a file.
type FileCitation struct {
	Type     string `json:"type"` // "file_citation"
	FileID   FileID `json:"file_id"`
	Filename string `json:"filename"`
	Index    int    `json:"index"` // of the citation in the text, in characters
}
