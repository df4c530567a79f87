package chat_test

import (
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/modeltest"
)

// open returns a provider that asks a double which follows the script.
func open(t testing.TB, script modeltest.Script, with ...func(*chat.Options)) (*chat.Provider, *modeltest.ChatHandler) {
	t.Helper()
	double := modeltest.NewChatServer(t, script)
	double.Key = modeltest.Key
	opts := chat.Options{BaseURL: double.URL, APIKey: modeltest.Key}
	for _, f := range with {
		f(&opts)
	}
	p, err := chat.New(opts)
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
		Closed: func(t *testing.T) model.Provider {
			p, err := chat.New(chat.Options{BaseURL: "http://127.0.0.1:1/v1", APIKey: modeltest.Key})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	})
}
