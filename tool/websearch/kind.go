package websearch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// includeSources is the value of "include" for the sources of searches.
const includeSources = "web_search_call.action.sources"

// Kinds returns the web search tools, one for each of berth.WebSearchTypes. Their calls are
// the same.
func Kinds(opts Options) []tool.Kind {
	calls := &tool.Calls{Call: berth.ItemWebSearchCall, CallPrefix: berth.PrefixWebSearch,
		LowerCall: lowerCall, LowerOutput: lowerOutput, Citables: citables,
		Hosted: func(berth.Item) bool { return true },
		Outcome: func(it berth.Item) tool.Outcome {
			if it.Status() == berth.StatusFailed {
				return tool.Failed
			}
			return tool.OK
		}}
	var kinds []tool.Kind
	for _, t := range berth.WebSearchTypes {
		offered := offeredRule
		if strings.HasPrefix(t, "web_search_preview") {
			offered = previewRule
		}
		kinds = append(kinds, tool.Kind{
			Type: t, Name: name, Calls: calls,
			Rules: func(*tool.Registry) tool.Rules {
				chosen := rule.Object(rule.Fields{"type": rule.AnyText})
				return tool.Rules{Tool: offered, Found: offered, Choice: chosen, Subset: chosen, Call: callRule}
			},
			Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
				decoded, err := tool.Decode[berth.WebSearchTool](t, "web search")
				if err != nil {
					return nil, err
				}
				return bind(opts, c, decoded)
			},
		})
	}
	return kinds
}

// maxDomains bounds the allowed domains of a request.
const maxDomains = 100

var (
	contextSize = rule.OneOf("low", "medium", "high")
	location    = rule.Object(rule.Fields{
		"type": rule.OneOf("approximate"), "country": rule.Text(0, 64), "region": rule.Text(0, 128),
		"city": rule.Text(0, 128), "timezone": rule.Text(0, 64),
	})
	offeredRule = rule.Object(rule.Fields{
		"type": rule.AnyText, "search_context_size": contextSize, "user_location": location,
		"filters":             rule.Object(rule.Fields{"allowed_domains": rule.List(rule.Text(1, 300), maxDomains)}),
		"external_web_access": onlyLive,
	})
	previewRule = rule.Object(rule.Fields{
		"type": rule.AnyText, "search_context_size": contextSize, "user_location": location,
		"search_content_types": rule.List(onlyText, 2),
	})
	callRule = rule.Item(rule.Fields{
		"status": rule.OneOf("in_progress", "searching", "completed", "incomplete", "failed"),
		"action": rule.ByType(map[string]rule.Rule{
			berth.WebSearchSearch: rule.OpenObject(rule.Fields{
				"query": rule.AnyText, "queries": rule.List(rule.AnyText, 0),
				"sources": rule.List(rule.OpenObject(rule.Fields{"type": rule.AnyText, "url": rule.AnyText}), 0),
			}),
			berth.WebSearchOpen: rule.OpenObject(rule.Fields{"url": rule.AnyText}),
			berth.WebSearchFind: rule.OpenObject(rule.Fields{"url": rule.AnyText, "pattern": rule.AnyText}),
		}),
		"berth": rule.OpenObject(rule.Fields{
			"page": rule.Integer(0, 1<<30), "pages": rule.Integer(0, 1<<30), "error": rule.Text(0, rule.MaxOutput),
			"code": rule.OneOf(berth.WebSearchLimited, berth.WebSearchInvalid),
			"results": rule.List(rule.OpenObject(rule.Fields{"url": rule.AnyText, "title": rule.AnyText,
				"text": rule.AnyText, "published": rule.AnyText}), 0),
		}),
	})
)

// onlyLive refuses a search without access to the web: there is no cache to search.
func onlyLive(at string, v any) error {
	if err := rule.Boolean(at, v); err != nil || v == true {
		return err
	}
	return rule.Errorf("unsupported_value", at,
		"Unsupported value: '%s' cannot be false. This server has no cache of the web; leave the tool out instead.", at)
}

// onlyText refuses searches for images.
func onlyText(at string, v any) error {
	if err := rule.OneOf("text", "image")(at, v); err != nil || v == "text" {
		return err
	}
	return rule.Errorf("unsupported_value", at,
		"Unsupported value: '%s' cannot be 'image'. This server searches for text only.", at)
}

func bind(opts Options, c tool.Context, t berth.WebSearchTool) (tool.Tool, error) {
	if opts.Backend == nil {
		return nil, &berth.Error{Code: berth.CodeInvalid, Wire: "unsupported_value", Param: "type",
			Message: fmt.Sprintf(
				"Unsupported value: '%s' needs a search service, and this server has none. Its operator can set 'web_search.backend' in the configuration.",
				t.Type)}
	}
	bound := &Tool{opts: opts, location: t.UserLocation, size: sizes[defaultSize], include: slices.Contains(c.Include,
		includeSources)}
	if s, ok := sizes[t.SearchContextSize]; ok {
		bound.size = s
	}
	if t.Limits != nil {
		bound.limits = *t.Limits
	}
	if t.Filters != nil {
		var err error
		if bound.domains, err = domains("allowed_domains", t.Filters.AllowedDomains); err != nil {
			return nil, err
		}
		if bound.blocked, err = domains("blocked_domains", t.Filters.BlockedDomains); err != nil {
			return nil, err
		}
	}
	return bound, nil
}

// domains returns the domains of a filter in the form in which names are compared.
func domains(field string, of []string) ([]string, error) {
	var all []string
	for i, d := range of {
		domain, ok := canonical(d)
		if !ok {
			return nil, berth.Invalid("filters",
				"Invalid 'filters.%s[%d]': expected a domain such as 'example.com', without 'https://' or a path.", field, i)
		}
		all = append(all, domain)
	}
	return all, nil
}

// canonical returns the name of a host in the form in which names are compared. It returns
// false for anything but a host name.
func canonical(host string) (string, bool) {
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(host)), "."))
	return ascii, err == nil && ascii != "" && !strings.ContainsAny(ascii, "/:@?#*%[] ")
}

// lowerCall returns a call with the arguments that the model wrote.
func lowerCall(item berth.Item) (function, arguments string, err error) {
	var call berth.WebSearchCall
	if err := item.Decode(&call); err != nil {
		return "", "", err
	}
	a := call.Action
	if a == nil {
		a = &berth.WebSearchAction{Type: berth.WebSearchSearch}
	}
	w := callArguments{Type: a.Type, Queries: a.Queries, URL: a.URL, Pattern: a.Pattern}
	if len(w.Queries) == 0 && a.Query != "" {
		w.Queries = []string{a.Query}
	}
	if call.Berth != nil && call.Berth.Page > 1 {
		w.Page = float64(call.Berth.Page)
	}
	raw, err := json.Marshal(w)
	return name, string(raw), err
}
