package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/scripted"
	"github.com/berth-run/berth/server/config"
)

// An embedding model that nothing serves stops the start, not the first search.
func TestEmbedderNeedsARoute(t *testing.T) {
	router, err := model.NewRouter(slog.New(slog.DiscardHandler), model.Rule{Match: "known",
		Provider: scripted.Provider{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&embedder{model: "known"}).use(&config.Config{}, router, nil); err != nil {
		t.Error(err)
	}
	if err := (*embedder)(nil).use(&config.Config{}, router, nil); err != nil {
		t.Error(err)
	}
	err = (&embedder{model: "lost"}).use(&config.Config{}, router, nil)
	if err == nil || !strings.Contains(err.Error(),
		`vector_stores.embedding_model: no entry of models matches "lost"`) {
		t.Errorf("got %v", err)
	}
}
