package filesearch

import (
	"context"
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/vectorstore"
)

// Kind returns the file_search tool.
func Kind(searcher Searcher) tool.Kind {
	return tool.Kind{
		Type: berth.ToolFileSearch, Name: name,
		Rules: func(*tool.Registry) tool.Rules {
			chosen := rule.Object(rule.Fields{"type": rule.AnyText})
			return tool.Rules{Tool: offered, Found: offered, Choice: chosen, Subset: chosen, Call: call}
		},
		Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
			decoded, err := tool.Decode[berth.FileSearchTool](t, "file search")
			if err != nil {
				return nil, err
			}
			return bind(searcher, c, decoded)
		},
		Admit: func(ctx context.Context, c berth.Caller, t berth.Tool) error {
			decoded, err := tool.Decode[berth.FileSearchTool](t, "file search")
			if err != nil {
				return err
			}
			return searcher.Check(ctx, c.Project, decoded.VectorStoreIDs)
		},
		Calls: &tool.Calls{Call: berth.ItemFileSearchCall, CallPrefix: berth.PrefixFileSearch,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Citables: citables, Fill: fill,
			Hosted: func(berth.Item) bool { return true },
			Outcome: func(it berth.Item) tool.Outcome {
				if it.Status() == berth.StatusFailed {
					return tool.Failed
				}
				return tool.OK
			}},
	}
}

var offered = rule.Object(rule.Fields{
	"type": rule.AnyText, "vector_store_ids": rule.AtLeastOne(rule.List(rule.Text(1, 256), 16)),
	"max_num_results": rule.Integer(1, 50),
	"ranking_options": vectorstore.RankingRule, "filters": vectorstore.FilterRule,
}, "vector_store_ids")

var call = rule.Item(rule.Fields{
	"status":  rule.OneOf("in_progress", "searching", "completed", "incomplete", "failed"),
	"queries": rule.List(rule.AnyText, 0),
	"results": rule.List(rule.OpenObject(rule.Fields{"file_id": rule.AnyText, "filename": rule.AnyText,
		"text": rule.AnyText, "score": rule.Decimal(0, 1), "attributes": vectorstore.AttributesRule}), 0),
}, "queries")

func bind(searcher Searcher, c tool.Context, t berth.FileSearchTool) (tool.Tool, error) {
	bound := &Tool{searcher: searcher, project: c.Caller.Project, stores: t.VectorStoreIDs,
		query: vectorstore.Query{Limit: defaultResults}}
	if t.MaxNumResults > 0 {
		bound.query.Limit = t.MaxNumResults
	}
	if t.RankingOptions != nil {
		bound.query.Ranking = *t.RankingOptions
	}
	var err error
	if bound.query.Filter, err = vectorstore.ParseFilter(t.Filters); err != nil {
		return nil, err
	}
	for _, included := range c.Include {
		bound.include = bound.include || included == includeResults
	}
	return bound, nil
}

// fill shows results that a client omitted as null.
func fill(it berth.Item, fields map[string]any) error {
	var held map[string]json.RawMessage
	err := it.Decode(&held)
	if err == nil && held["results"] == nil {
		fields["results"] = nil
	}
	return err
}
