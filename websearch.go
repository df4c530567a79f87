package berth

// WebSearchTypes are the types of web search tools. Those with a date are the version that
// their plain name means.
var WebSearchTypes = []string{ToolWebSearch, "web_search_2025_08_26", "web_search_preview",
	"web_search_preview_2025_03_11"}

// A WebSearchTool lets the model search the web and read its pages.
type WebSearchTool struct {
	Type              string             `json:"type"` // one of WebSearchTypes
	Filters           *WebSearchFilters  `json:"filters,omitempty"`
	UserLocation      *WebSearchLocation `json:"user_location,omitempty"`
	SearchContextSize string             `json:"search_context_size,omitempty"` // low, medium or high
	Limits            *WebSearchLimits   `json:"limits,omitempty"`              // set by the Messages API only
}

// WebSearchLimits bound the calls of one response. Nil means no limit.
type WebSearchLimits struct {
	Searches *int `json:"searches,omitempty"`
	Pages    *int `json:"pages,omitempty"` // calls that open a page or search in it
}

// WebSearchFilters limit the pages of a web search.
type WebSearchFilters struct {
	AllowedDomains []string `json:"allowed_domains"`           // with their subdomains; empty allows all
	BlockedDomains []string `json:"blocked_domains,omitempty"` // with their subdomains; set by the Messages API only
}

// A WebSearchLocation is where the user is, approximately.
type WebSearchLocation struct {
	Type     string `json:"type,omitempty"`    // "approximate"
	Country  string `json:"country,omitempty"` // ISO 3166-1, two letters
	Region   string `json:"region,omitempty"`
	City     string `json:"city,omitempty"`
	Timezone string `json:"timezone,omitempty"` // IANA
}

// The types of a WebSearchAction.
const (
	WebSearchSearch = "search"
	WebSearchOpen   = "open_page"
	WebSearchFind   = "find_in_page"
)

// A WebSearchCall is one action on the web and what it found.
type WebSearchCall struct {
	ID     string           `json:"id"`
	Type   ItemType         `json:"type"`             // "web_search_call"
	Status string           `json:"status"`           // in_progress, searching, completed, incomplete or failed
	Action *WebSearchAction `json:"action,omitempty"` // nil until the model has written it
	Berth  *WebSearchBerth  `json:"berth,omitempty"`
}

// A WebSearchAction is what a WebSearchCall does.
type WebSearchAction struct {
	Type    string            `json:"type"`              // search, open_page or find_in_page
	Query   string            `json:"query,omitempty"`   // of a search: the first of Queries
	Queries []string          `json:"queries,omitempty"` // of a search
	URL     string            `json:"url,omitempty"`     // of open_page and find_in_page
	Pattern string            `json:"pattern,omitempty"` // of find_in_page
	Sources []WebSearchSource `json:"sources,omitempty"` // of a search, if the request includes them
}

// A WebSearchSource is a page that a search found.
type WebSearchSource struct {
	Type string `json:"type"` // "url"
	URL  string `json:"url"`
}

// WebSearchBerth extends OpenAI's web_search_call.
type WebSearchBerth struct {
	Page    int               `json:"page,omitempty"`    // of open_page: which part of a long page, from 1
	Pages   int               `json:"pages,omitempty"`   // of open_page: how many parts the page has
	Results []WebSearchResult `json:"results,omitempty"` // what the model was shown
	Error   string            `json:"error,omitempty"`   // of a failed call
	Code    string            `json:"code,omitempty"`    // of an error: max_uses_exceeded or invalid_tool_input
}

// The codes of failed calls.
const (
	WebSearchLimited = "max_uses_exceeded"
	WebSearchInvalid = "invalid_tool_input"
)

// A WebSearchResult is a page, or a part of one, that the model was shown.
type WebSearchResult struct {
	URL       string `json:"url"`
	Title     string `json:"title"`
	Text      string `json:"text"`
	Published string `json:"published,omitempty"` // as the search service states it
}

// A URLCitation is the annotation of a text that cites a web page.
type URLCitation struct {
	Type       string `json:"type"`        // "url_citation"
	StartIndex int    `json:"start_index"` // of the cited text in the answer, in characters
	EndIndex   int    `json:"end_index"`   // exclusive
	URL        string `json:"url"`
	Title      string `json:"title"`
}
