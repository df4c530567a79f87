package websearch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// lowerOutput returns what a call found as the model sees it, marked as data.
func lowerOutput(item berth.Item) (json.RawMessage, error) {
	var call berth.WebSearchCall
	if err := item.Decode(&call); err != nil {
		return nil, err
	}
	switch call.Status {
	case string(berth.StatusCompleted):
	case string(berth.StatusFailed):
		reason := "The call failed."
		if call.Berth != nil && call.Berth.Error != "" {
			reason = "The call failed.\n" + tool.Fence(name, tool.Shorten(call.Berth.Error, 4<<10))
		}
		return berth.StringDelta(reason), nil
	default:
		return nil, nil
	}
	if call.Berth == nil {
		return berth.StringDelta("The call completed on another server. What it found is not known here."), nil
	}
	if len(call.Berth.Results) == 0 {
		if call.Action != nil && call.Action.Type == berth.WebSearchFind {
			return berth.StringDelta("The page does not contain the pattern."), nil
		}
		return berth.StringDelta("Nothing was found. Try other words."), nil
	}
	var b strings.Builder
	for i, r := range call.Berth.Results {
		fmt.Fprintf(&b, "%s\n%s\n%s\n", mark(call.ID, i, r), r.Title, r.URL)
		if r.Published != "" {
			fmt.Fprintf(&b, "published %s\n", r.Published)
		}
		fmt.Fprintf(&b, "%s\n\n", r.Text)
	}
	return berth.StringDelta(headOf(call) + "\n" + tool.Fence(name, strings.TrimSpace(b.String()))), nil
}

// headOf returns what a model is shown before the results of a call.
func headOf(call berth.WebSearchCall) string {
	switch {
	case call.Berth.Pages > 1:
		return fmt.Sprintf("Part %d of %d of the page.", call.Berth.Page, call.Berth.Pages)
	case call.Berth.Pages == 1:
		return "The page."
	case call.Action != nil && call.Action.Type == berth.WebSearchFind:
		return fmt.Sprintf("%d places in the page.", len(call.Berth.Results))
	}
	return fmt.Sprintf("%d results.", len(call.Berth.Results))
}

// mark returns the mark of a result: a part of the call's id, the result's number, and the
// host for the model to read. Pages do not know the id, so they contain no mark.
func mark(id string, n int, r berth.WebSearchResult) string {
	return fmt.Sprintf("%s%s:%d†%s%s", tool.MarkStart, id[max(0, len(id)-6):], n, hostOf(r.URL), tool.MarkEnd)
}

// hostOf returns the host of a URL as citations show it.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "page"
	}
	host, ok := canonical(u.Hostname())
	if !ok {
		return "page"
	}
	return strings.TrimPrefix(host, "www.")
}

// citables returns the results of a call. A citation is a link in the text, as the hosted
// service writes it.
func citables(item berth.Item) []tool.Citable {
	var call berth.WebSearchCall
	if item.Decode(&call) != nil || call.Status != string(berth.StatusCompleted) || call.Berth == nil {
		return nil
	}
	var all []tool.Citable
	for i, r := range call.Berth.Results {
		text := "([" + hostOf(r.URL) + "](" + linkTarget.Replace(r.URL) + "))"
		all = append(all, tool.Citable{Mark: mark(call.ID, i, r), Text: text, Annotation: func(start,
			end int) json.RawMessage {
			// always marshals
			raw, _ := json.Marshal(berth.URLCitation{Type: "url_citation", StartIndex: start, EndIndex: end, URL: r.URL,
				Title: cmp.Or(r.Title, hostOf(r.URL))})
			return raw
		}})
	}
	return all
}

// linkTarget encodes what would end the target of a link in Markdown.
var linkTarget = strings.NewReplacer("(", "%28", ")", "%29", " ", "%20", "<", "%3C", ">", "%3E", "\n", "%0A", "[",
	"%5B", "]", "%5D")
