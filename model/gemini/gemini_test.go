package gemini_test

import (
	"testing"
	"time"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/gemini"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

// open returns a provider and its double, which follows the script.
func open(t testing.TB, script modeltest.Script, with ...func(*gemini.Options)) (*gemini.Provider,
	*modeltest.GeminiHandler) {
	t.Helper()
	double := modeltest.NewGeminiServer(t, script)
	double.Key = modeltest.Key
	opts := gemini.Options{Options: upstream.Options{BaseURL: double.URL, APIKey: modeltest.Key}}
	for _, f := range with {
		f(&opts)
	}
	p, err := gemini.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p, double
}

func TestSuite(t *testing.T) {
	modeltest.Run(t, modeltest.Harness{
		Open: func(t *testing.T, script modeltest.Script) (model.Provider, *modeltest.Double) {
			p, double := open(t, script)
			return p, double.Double
		},
		At: func(t *testing.T, address string, timeout time.Duration) model.Provider {
			p, err := gemini.New(gemini.Options{Options: upstream.Options{BaseURL: address, APIKey: modeltest.Key,
				FirstToken: timeout, Silence: timeout}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Lacks: []modeltest.Feature{modeltest.Broken, modeltest.User, modeltest.SchemaNames, modeltest.StrictTools,
			modeltest.OneCall, modeltest.FileNames, modeltest.ThoughtTexts},
	})
}
