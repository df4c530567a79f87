package openai

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// TestReported: the Finish has the service tier and moderation of the response.
func TestReported(t *testing.T) {
	in := "data: {\"type\":\"response.completed\",\"response\":{\"service_tier\":\"priority\",\"moderation\":{\"input\":{},\"output\":{}}}}\n\n"
	for d, err := range upstream.Read(strings.NewReader(in), newAnswer(&model.Request{}, false,
		slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler)) {
		if f, ok := d.(model.Finish); err != nil || !ok || f.ServiceTier != "priority" ||
			string(f.Moderation) != `{"input":{},"output":{}}` {
			t.Errorf("got %+v, %v", d, err)
		}
	}
}
