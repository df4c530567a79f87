package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/server/config"
)

// A model of the server's own that nothing serves stops the start, not the first search or image.
func TestOwnModelsNeedARoute(t *testing.T) {
	for _, key := range []string{"image_generation.model", "vector_stores.embedding_model"} {
		c := &config.Config{Driver: "unsafe-local"}
		if c.Images.Model = "lost"; key != "image_generation.model" {
			c.Images.Model, c.Vectors.EmbeddingModel = "", "lost"
		}
		s, err := New(t.Context(), Options{State: t.TempDir(), Config: c, Build: berth.Build{Version: "test"},
			Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), key+`: no entry of models matches "lost"`) {
			t.Errorf("%s: got %v", key, err)
		}
		if err == nil {
			s.Close(t.Context())
		}
	}
}
