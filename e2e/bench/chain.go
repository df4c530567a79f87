package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// chainRounds is how often each turn is measured in turn with the others.
const chainRounds = 5

// chainDepths are the turns that are measured; the chain has as many as the last of them.
var chainDepths = []int{1, 100, 1000}

// measureChain measures turns of a chain of stored responses, beside the model alone with the
// same messages. Berth's own share is what it adds to that. Each answer of the model has the
// number of turns that it was shown, which is checked.
func measureChain(ctx context.Context, b *bench) (err error) {
	t := &table{title: "A turn of a chain"}
	defer b.show(t)
	model := newModel()
	defer model.Close()
	s, err := b.serve(ctx, overheadConfig(model.URL))
	if err != nil {
		return err
	}
	defer stopped(s, &err)
	deepest := chainDepths[len(chainDepths)-1]
	ids, built, err := s.buildChain(ctx, deepest-1)
	t.add(row{what: fmt.Sprintf("turns 1 to %d, one after another", deepest-1), unit: "ms", series: built})
	if err != nil {
		return err
	}
	targets := make([]target, 0, 2*len(chainDepths))
	for _, depth := range chainDepths {
		targets = append(targets, chainTargets(s, model.URL, ids, depth)...)
	}
	figures := make([]overheadFigures, len(targets))
	for round := range chainRounds + 1 {
		for i, at := range targets {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if got := at.load(ctx, s.http, 1, max(b.n/2, 1)); round > 0 { // the first opens connections
				figures[i].join(got)
			}
		}
	}
	var first, firstShare series
	for i, depth := range chainDepths {
		through, direct := figures[2*i], figures[2*i+1]
		share := through.whole.minus(direct.whole.percentile(50))
		t.add(row{what: fmt.Sprintf("turn %d", depth), unit: "ms", series: through.whole, beside: "the model alone",
			other: direct.whole})
		if i == 0 {
			first, firstShare = through.processor, share
			continue
		}
		t.add(row{what: fmt.Sprintf("turn %d: own share", depth), unit: "ms", series: share, beside: "of turn 1",
			other: firstShare, target: "1.5×"})
		t.add(row{what: fmt.Sprintf("turn %d: processor time of the server", depth), unit: "ms",
			series: through.processor, beside: "of turn 1", other: first})
	}
	return nil
}

// chainQuestion is the input of each turn: as many words as an answer has.
var chainQuestion = countTurns + strings.Repeat(" word", answerWords-3)

// buildChain makes a chain of n responses and returns their ids.
func (s *server) buildChain(ctx context.Context, n int) (ids []string, took series, err error) {
	in := map[string]any{"model": "m", "input": chainQuestion}
	for range n {
		var out struct{ ID, Status string }
		d, err := timed(func() error { return s.do(ctx, http.MethodPost, "/v1/responses", in, &out) })
		if took.took(d, err); err != nil {
			return nil, took, err
		}
		if out.Status != "completed" {
			return nil, took, fmt.Errorf("turn %d: the status is %s", len(ids)+1, out.Status)
		}
		ids = append(ids, out.ID)
		in["previous_response_id"] = out.ID
	}
	return ids, took, nil
}

// chainTargets returns a turn through Berth, which continues the turn before it, and the same
// messages sent to the model.
func chainTargets(s *server, model string, ids []string, depth int) []target {
	in := map[string]any{"model": "m", "input": chainQuestion}
	var messages []any
	if depth > 1 {
		in["previous_response_id"] = ids[depth-2]
	}
	for range depth - 1 {
		messages = append(messages, map[string]any{"role": "user", "content": chainQuestion},
			map[string]any{"role": "assistant", "content": plainText})
	}
	messages = append(messages, map[string]any{"role": "user", "content": chainQuestion})
	want := fmt.Sprintf(`"%d word`, depth)
	return []target{
		{name: fmt.Sprintf("turn %d", depth), url: s.url + "/v1/responses", body: mustJSON(in), want: want,
			pids: []int{s.cmd.Process.Pid}},
		{name: fmt.Sprintf("turn %d, the model alone", depth), url: model + "/v1/chat/completions",
			body: mustJSON(map[string]any{"model": "m", "messages": messages}), want: want},
	}
}
