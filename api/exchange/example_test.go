package exchange_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// A greeter is a door with one handler.
type greeter struct{ greeting string }

var greetingBody = rule.Object(rule.Fields{"name": rule.Text(1, 64)}, "name")

// greet decodes, calls and encodes.
func (g *greeter) greet(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct{ Name string }
	if err := x.Decode(r, greetingBody, &body); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, map[string]string{"text": g.greeting + ", " + body.Name, "project": string(c.Project)})
}

// noKeys is a store without keys: the server accepts requests from its own machine only.
type noKeys struct{ store.Keys }

func (noKeys) KeyOf(context.Context, berth.Caller) (*berth.Key, error) { return nil, berth.ErrNotFound }
func (noKeys) ListKeys(context.Context) ([]*berth.Key, error)          { return nil, nil }

// A door needs only this package and its own services.
func Example() {
	door := &greeter{"Ahoy"}
	server := exchange.New(exchange.Options{Keys: noKeys{}, Log: slog.New(slog.DiscardHandler)})
	greet := exchange.On("POST /greetings", door.greet, exchange.StoresNothing)
	greet.Permission = berth.MayRun
	table := server.Table([]exchange.Route{greet})
	handler := server.Handler(table.Serve)

	for _, body := range []string{`{"name":"Ann"}`, `{"name":7}`} {
		r := httptest.NewRequest("POST", "http://localhost/greetings", strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:5"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 {"project":"proj_default","text":"Ahoy, Ann"}
	// 400 {"error":{"message":"Invalid type for 'name': expected a string, but got an integer instead.","type":"invalid_request_error","param":"name","code":"invalid_type"}}
}
