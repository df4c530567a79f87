package chat_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

// open returns a provider and its double, which follows the script.
func open(t testing.TB, script modeltest.Script, with ...func(*chat.Options)) (*chat.Provider, *modeltest.ChatHandler) {
	t.Helper()
	double := modeltest.NewChatServer(t, script)
	double.Key = modeltest.Key
	opts := chat.Options{Options: upstream.Options{BaseURL: double.URL, APIKey: modeltest.Key}}
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
		Lacks: []modeltest.Feature{modeltest.Signatures},
		At: func(t *testing.T, address string, timeout time.Duration) model.Provider {
			p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: address, APIKey: modeltest.Key,
				FirstToken: timeout, Silence: timeout}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	})
}

// A request to an upstream that stops responding is cancelled. After the finish
// reason, the upstream may close the connection in any way.
func TestSilence(t *testing.T) {
	forever := modeltest.Wait(nil)
	text := model.Text{Text: "a"}
	tests := []struct {
		name string
		turn modeltest.Turn
		with func(o *chat.Options, timeout time.Duration)
		code berth.Code
	}{
		{"before the first output", modeltest.Reply(forever), func(o *chat.Options, timeout time.Duration) {
			o.FirstToken = timeout
		}, berth.CodeUpstream},
		{"after the first output", modeltest.Reply(text, forever), func(o *chat.Options, timeout time.Duration) {
			o.Silence = timeout
		}, berth.CodeUpstream},
		{"after the end",
			modeltest.Reply(text, modeltest.Raw("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"),
				forever),
			func(o *chat.Options, timeout time.Duration) { o.Silence = timeout }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, double := open(t, modeltest.Always(tt.turn))
			received := func() int { return len(double.Requests()) }
			modeltest.UntilReceived(20*time.Millisecond, received, func(timeout time.Duration) {
				opts := chat.Options{Options: upstream.Options{BaseURL: double.URL, APIKey: modeltest.Key}}
				tt.with(&opts, timeout)
				p, err := chat.New(opts)
				if err != nil {
					t.Fatal(err)
				}
				_, err = modeltest.Collect(t, p, &model.Request{Model: "m", Items: []berth.Item{message("user", "hi")}})
				if berth.ErrorCode(err) != tt.code {
					t.Errorf("got %v, want code %q", err, tt.code)
				}
			})
			<-double.Left
		})
	}
	t.Run("before the headers", func(t *testing.T) {
		var received atomic.Int64
		gone := make(chan struct{}, 10)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			received.Add(1)
			<-r.Context().Done()
			gone <- struct{}{}
		}))
		defer server.Close()
		modeltest.UntilReceived(20*time.Millisecond, func() int {
			return int(received.Load())
		}, func(timeout time.Duration) {
			p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: server.URL, FirstToken: timeout}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = modeltest.Collect(t, p, &model.Request{Model: "m", Items: []berth.Item{message("user", "hi")}})
			if berth.ErrorCode(err) != berth.CodeUpstream {
				t.Errorf("got %v, want code %s", err, berth.CodeUpstream)
			}
		})
		<-gone
	})
}
