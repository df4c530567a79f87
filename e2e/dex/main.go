// Program dex is a real OpenID provider for tests: Dex with its state in memory, static passwords and groups.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/dexidp/dex/connector"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

// groups are the groups of the persons. The password of each is "password".
var groups = map[string][]string{
	"ada@example.com":   {"engineers", "operators"},
	"bob@example.com":   {"engineers"},
	"carol@example.com": {"sales"},
}

// A directory is a connector with static persons.
type directory struct{}

func (directory) Open(string, logrus.FieldLogger) (connector.Connector, error) {
	return directory{}, nil
}
func (directory) Prompt() string { return "Email" }

func (directory) Login(_ context.Context, _ connector.Scopes, name, password string) (connector.Identity, bool, error) {
	if groups[name] == nil || password != "password" {
		return connector.Identity{}, false, nil
	}
	return connector.Identity{UserID: name, Username: name, Email: name, EmailVerified: true,
		Groups: groups[name]}, true, nil
}

func main() {
	redirect := flag.String("redirect", "", "redirect URI of the client berth")
	web := flag.String("web", "", "Dex's directory web")
	flag.Parse()
	if err := serve(*redirect, *web); err != nil {
		fmt.Fprintln(os.Stderr, "dex:", err)
		os.Exit(1)
	}
}

func serve(redirect, web string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	log := logrus.New()
	log.SetOutput(os.Stderr)
	server.ConnectorsConfig["directory"] = func() server.ConnectorConfig { return directory{} }
	state := storage.WithStaticConnectors(storage.WithStaticClients(memory.New(log), []storage.Client{{ID: "berth",
		Secret: "the-secret-of-the-client", Name: "Berth", RedirectURIs: []string{redirect}}}),
		[]storage.Connector{{ID: "directory", Type: "directory", Name: "Directory"}})
	issuer := "http://" + l.Addr().String() + "/dex"
	handler, err := server.NewServer(context.Background(), server.Config{Issuer: issuer, Storage: state,
		SkipApprovalScreen: true, Web: server.WebConfig{Dir: web}, Logger: log,
		PrometheusRegistry: prometheus.NewRegistry()})
	if err != nil {
		return err
	}
	fmt.Println(issuer)
	return http.Serve(l, handler)
}
