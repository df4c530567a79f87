package chat_test

import (
	"net/http"
	"testing"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

func FuzzHistory(f *testing.F) {
	double := modeltest.NewChatHandler(modeltest.Always(modeltest.Reply(model.Text{Text: "ok"},
		model.Finish{Reason: model.FinishStop})))
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: "http://double/v1",
		HTTPClient: &http.Client{Transport: modeltest.Direct{Handler: double}}}})
	if err != nil {
		f.Fatal(err)
	}
	modeltest.FuzzHistory(f, p, double.Double)
}
