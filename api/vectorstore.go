package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/vectorstore"
)

// vectorStores serves vector stores, their files and batches.
type vectorStores struct{ service *vectorstore.Service }

var (
	vectorExpiry = rule.Object(rule.Fields{"anchor": rule.OneOf("last_active_at"), "days": rule.Integer(1, 365)},
		"anchor", "days")

	vectorStoreBody = rule.Object(rule.Fields{
		"name": rule.Text(0, 256), "description": rule.Text(0, 512), "file_ids": rule.List(rule.Text(1, 256), 500),
		"expires_after":     vectorExpiry,
		"chunking_strategy": vectorstore.ChunkingRule, "metadata": rule.Metadata,
	})
	vectorStoreChange = rule.Object(rule.Fields{"name": rule.Text(0, 256), "expires_after": vectorExpiry,
		"metadata": rule.Metadata})
	vectorFileBody   = rule.Object(vectorFileFields, "file_id")
	vectorFileChange = rule.Object(rule.Fields{"attributes": vectorstore.AttributesRule})
	vectorBatchBody  = rule.OneSource([]string{"file_ids", "files"}, rule.Object(rule.Fields{
		"file_ids":          rule.AtLeastOne(rule.List(rule.Text(1, 256), 2000)),
		"files":             rule.AtLeastOne(rule.List(vectorFileBody, 2000)),
		"chunking_strategy": vectorstore.ChunkingRule, "attributes": vectorstore.AttributesRule,
	}))
	vectorSearchBody = rule.Object(rule.Fields{
		"query": searchQuery, "rewrite_query": rule.Boolean, "max_num_results": rule.Integer(1, 50),
		"filters":         vectorstore.FilterRule,
		"ranking_options": vectorstore.RankingRule,
	}, "query")

	vectorFileFields = rule.Fields{"file_id": rule.Text(1, 256), "chunking_strategy": vectorstore.ChunkingRule,
		"attributes": vectorstore.AttributesRule}
)

// searchQuery allows a string or a list of strings.
func searchQuery(at string, v any) error {
	if _, ok := v.([]any); ok {
		return rule.AtLeastOne(rule.List(rule.Text(1, 4096), 16))(at, v)
	}
	return rule.Text(1, 4096)(at, v)
}

// create serves POST /v1/vector_stores.
func (h *vectorStores) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Name             string                  `json:"name"`
		Description      string                  `json:"description"`
		FileIDs          []berth.FileID          `json:"file_ids"`
		ExpiresAfter     *berth.VectorExpiry     `json:"expires_after"`
		ChunkingStrategy *berth.ChunkingStrategy `json:"chunking_strategy"`
		Metadata         map[string]string       `json:"metadata"`
	}
	if err := x.DecodeOptional(r, vectorStoreBody, &body); err != nil {
		return err
	}
	v, err := h.service.Create(r.Context(), c.Project, vectorstore.CreateRequest(body))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, v)
}

// list serves GET /v1/vector_stores.
func (h *vectorStores) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.PageBoth()
	if err := q.End(); err != nil {
		return err
	}
	data, more, err := h.service.List(r.Context(), c.Project, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(v *berth.VectorStore) string { return string(v.ID) }))
}

// get serves GET /v1/vector_stores/{vector_store}.
func (h *vectorStores) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Get, vectorStoreID(r))
}

// update serves POST /v1/vector_stores/{vector_store}. expires_after null removes the
// expiry.
func (h *vectorStores) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Name         *string           `json:"name"`
		ExpiresAfter json.RawMessage   `json:"expires_after"`
		Metadata     map[string]string `json:"metadata"`
	}
	if err := x.Decode(r, vectorStoreChange, &body); err != nil {
		return err
	}
	change := vectorstore.Change{Name: body.Name, Metadata: body.Metadata, Never: string(body.ExpiresAfter) == "null"}
	if len(body.ExpiresAfter) > 0 && !change.Never {
		if err := json.Unmarshal(body.ExpiresAfter, &change.ExpiresAfter); err != nil {
			return fmt.Errorf("decode expires_after: %w", err)
		}
	}
	v, err := h.service.Update(r.Context(), c.Project, vectorStoreID(r), change)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, v)
}

// delete serves DELETE /v1/vector_stores/{vector_store}.
func (h *vectorStores) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, h.service.Delete, vectorStoreID(r), "vector_store.deleted")
}

// search serves POST /v1/vector_stores/{vector_store}/search.
func (h *vectorStores) search(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Query          queries              `json:"query"`
		MaxNumResults  int                  `json:"max_num_results"`
		Filters        json.RawMessage      `json:"filters"`
		RankingOptions berth.RankingOptions `json:"ranking_options"`
		RewriteQuery   bool                 `json:"rewrite_query"` // has no effect
	}
	body.MaxNumResults = 10
	if err := x.Decode(r, vectorSearchBody, &body); err != nil {
		return err
	}
	filter, err := vectorstore.ParseFilter(body.Filters)
	if err != nil {
		return err
	}
	found, err := h.service.Search(r.Context(), c.Project, []berth.VectorStoreID{vectorStoreID(r)},
		vectorstore.Query{Queries: body.Query, Limit: body.MaxNumResults, Filter: filter, Ranking: body.RankingOptions})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, newSearchPage(body.Query, found))
}

// queries are one string or several.
type queries []string

func (q *queries) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*q = queries{""}
		return json.Unmarshal(b, &(*q)[0])
	}
	return json.Unmarshal(b, (*[]string)(q))
}

// A searchPage is the results of a search on the wire.
type searchPage struct {
	Object      string        `json:"object"`
	SearchQuery []string      `json:"search_query"`
	Data        []searchEntry `json:"data"`
	HasMore     bool          `json:"has_more"`
	NextPage    *string       `json:"next_page"`
	Berth       struct {
		Search   string `json:"search"`             // bm25, hybrid or vector
		Degraded string `json:"degraded,omitempty"` // why the search was by words only
	} `json:"berth"`
}

type searchEntry struct {
	FileID     berth.FileID     `json:"file_id"`
	Filename   string           `json:"filename"`
	Score      float64          `json:"score"`
	Attributes berth.Attributes `json:"attributes"`
	Content    []textContent    `json:"content"`
}

type textContent struct {
	Type string `json:"type"` // "text"
	Text string `json:"text"`
}

func newSearchPage(query []string, found *vectorstore.Results) searchPage {
	page := searchPage{Object: "vector_store.search_results.page", SearchQuery: query, Data: []searchEntry{}}
	page.Berth.Search = found.Search
	if found.Degraded {
		page.Berth.Degraded = berth.SearchDegraded
	}
	for _, f := range found.List {
		page.Data = append(page.Data, searchEntry{f.FileID, f.Filename, f.Score, f.Attributes,
			[]textContent{{"text", f.Text}}})
	}
	return page
}

// vectorStoreID returns the vector store id of the request's path.
func vectorStoreID(r *http.Request) berth.VectorStoreID {
	return berth.VectorStoreID(r.PathValue("vector_store"))
}
