package backend

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// searxng is the search API of SearXNG, whose settings must allow the format json. A key is
// sent as a bearer token, for a proxy before it.
type searxng struct{ service }

func (s searxng) Search(ctx context.Context, q Query) ([]berth.WebSearchResult, error) {
	var answer struct {
		Results list[struct {
			URL           string
			Title         string
			Content       string
			PublishedDate string
		}]
	}
	header := http.Header{}
	if s.key != "" {
		header.Set("Authorization", "Bearer "+s.key)
	}
	if err := s.get(ctx, "/search", url.Values{"q": {onlyIn(q.Text, q.Domains)}, "format": {"json"}}, header,
		&answer); err != nil {
		return nil, err
	}
	var found []berth.WebSearchResult
	for _, r := range answer.Results.elements {
		found = append(found, berth.WebSearchResult{URL: r.URL, Title: r.Title, Text: r.Content,
			Published: r.PublishedDate})
	}
	return s.checked(found, answer.Results.malformed, q.Limit)
}

// brave is Brave's web search API.
type brave struct{ service }

const (
	braveMost  = 20  // results
	braveQuery = 400 // characters
)

// braveCountries are the values that Brave accepts for a country.
var braveCountries = strings.Fields(
	"AR AU AT BE BR CA CL DK FI FR DE GR HK IN ID IT JP KR MY MX NL NZ NO CN PL PT PH RU SA ZA ES SE CH TW TR GB US")

func (b brave) Search(ctx context.Context, q Query) ([]berth.WebSearchResult, error) {
	var answer struct {
		Web struct {
			Results list[struct {
				URL           string
				Title         string
				Description   string
				ExtraSnippets []string `json:"extra_snippets"`
				PageAge       string   `json:"page_age"`
			}]
		}
	}
	text := onlyIn(q.Text, q.Domains)
	if len([]rune(text)) > braveQuery {
		text = cut(q.Text, braveQuery) // the results are filtered in any case
	}
	parameters := url.Values{"q": {text}, "count": {strconv.Itoa(min(q.Limit, braveMost))},
		"text_decorations": {"false"}, "result_filter": {"web"}}
	if q.Location != nil && slices.Contains(braveCountries, strings.ToUpper(q.Location.Country)) {
		parameters.Set("country", strings.ToUpper(q.Location.Country))
	}
	if err := b.get(ctx, "", parameters, http.Header{"X-Subscription-Token": {b.key}}, &answer); err != nil {
		return nil, err
	}
	var found []berth.WebSearchResult
	for _, r := range answer.Web.Results.elements {
		found = append(found, berth.WebSearchResult{URL: r.URL, Title: html.UnescapeString(r.Title),
			Published: r.PageAge,
			Text:      html.UnescapeString(strings.Join(append([]string{r.Description}, r.ExtraSnippets...), "\n"))})
	}
	return b.checked(found, answer.Web.Results.malformed, q.Limit)
}

// tavily is Tavily's search API. It names countries in a way of its own, so a location has no
// effect.
type tavily struct{ service }

// tavilyMost is the largest max_results.
const tavilyMost = 20

func (t tavily) Search(ctx context.Context, q Query) ([]berth.WebSearchResult, error) {
	var answer struct {
		Results list[struct {
			URL           string
			Title         string
			Content       string
			PublishedDate string `json:"published_date"`
		}]
	}
	request := struct {
		Query          string   `json:"query"`
		MaxResults     int      `json:"max_results"`
		IncludeDomains []string `json:"include_domains,omitempty"`
	}{q.Text, min(q.Limit, tavilyMost), q.Domains}
	if err := t.post(ctx, request, &answer); err != nil {
		return nil, err
	}
	var found []berth.WebSearchResult
	for _, r := range answer.Results.elements {
		found = append(found, berth.WebSearchResult{URL: r.URL, Title: r.Title, Text: r.Content,
			Published: r.PublishedDate})
	}
	return t.checked(found, answer.Results.malformed, q.Limit)
}

// customService is a service of the operator's own; docs/web-search.md describes its JSON.
type customService struct{ service }

func (c customService) Search(ctx context.Context, q Query) ([]berth.WebSearchResult, error) {
	var answer struct {
		Results list[berth.WebSearchResult] `json:"results"`
	}
	request := struct {
		Query          string                   `json:"query"`
		MaxResults     int                      `json:"max_results"`
		AllowedDomains []string                 `json:"allowed_domains,omitempty"`
		UserLocation   *berth.WebSearchLocation `json:"user_location,omitempty"`
	}{q.Text, q.Limit, q.Domains, q.Location}
	if err := c.post(ctx, request, &answer); err != nil {
		return nil, err
	}
	return c.checked(answer.Results.elements, answer.Results.malformed, q.Limit)
}
