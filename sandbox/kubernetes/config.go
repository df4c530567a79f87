package kubernetes

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// serviceAccountDir is where Kubernetes mounts a Pod's own identity.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// An identity is a cluster's API server, and how the driver authenticates to it.
type identity struct {
	server    *url.URL
	tls       *tls.Config
	token     *token // nil if a certificate authenticates
	namespace string // may be empty
}

// loadIdentity returns the identity of a context in a kubeconfig file. Without a file it is that
// of the Pod that this process runs in, or else that of the file that kubectl would read.
func loadIdentity(file, context string) (identity, error) {
	if file == "" && context == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return inCluster(serviceAccountDir)
	}
	if file == "" {
		var err error
		if file, err = defaultKubeconfig(); err != nil {
			return identity{}, err
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return identity{}, fmt.Errorf("read the kubeconfig: %w", err)
	}
	id, err := parseKubeconfig(raw, filepath.Dir(file), context)
	if err != nil {
		return identity{}, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	return id, nil
}

func defaultKubeconfig() (string, error) {
	list := slices.DeleteFunc(filepath.SplitList(os.Getenv("KUBECONFIG")), func(s string) bool { return s == "" })
	switch len(list) {
	case 0:
		home, err := os.UserHomeDir()
		return filepath.Join(home, ".kube", "config"), err
	case 1:
		return list[0], nil
	}
	return "", errors.New("KUBECONFIG names several files; name one in kubernetes.kubeconfig")
}

func inCluster(dir string) (identity, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443")
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return identity{}, fmt.Errorf("read the service account of this Pod: %w", err)
	}
	config, err := tlsConfig(ca)
	if err != nil {
		return identity{}, err
	}
	t := &token{file: filepath.Join(dir, "token")}
	if _, err := t.get(); err != nil {
		return identity{}, err
	}
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return identity{}, err
	}
	return identity{server: &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}, tls: config, token: t,
		namespace: strings.TrimSpace(string(namespace))}, nil
}

// A kubeconfig is kubectl's configuration, as far as the driver understands it.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User, Namespace string }
	}
	Clusters []struct {
		Name    string
		Cluster struct {
			Server     string
			CAFile     string `yaml:"certificate-authority"`
			CAData     string `yaml:"certificate-authority-data"`
			ServerName string `yaml:"tls-server-name"`
			Insecure   bool   `yaml:"insecure-skip-tls-verify"`
			Proxy      string `yaml:"proxy-url"`
		}
	}
	Users []struct {
		Name string
		User kubeUser
	}
}

type kubeUser struct {
	Token        string
	TokenFile    string    `yaml:"tokenFile"`
	CertFile     string    `yaml:"client-certificate"`
	CertData     string    `yaml:"client-certificate-data"`
	KeyFile      string    `yaml:"client-key"`
	KeyData      string    `yaml:"client-key-data"`
	Exec         yaml.Node `yaml:"exec"`
	AuthProvider yaml.Node `yaml:"auth-provider"`
	Username     string
	Impersonate  string `yaml:"as"`
}

// parseKubeconfig returns the identity of a context, the current one by default. Paths in the
// file are relative to dir.
func parseKubeconfig(raw []byte, dir, context string) (identity, error) {
	var c kubeconfig
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return identity{}, fmt.Errorf("decode kubeconfig: %w", err)
	}
	context = cmp.Or(context, c.CurrentContext)
	at := slices.IndexFunc(c.Contexts, func(x struct {
		Name    string
		Context struct{ Cluster, User, Namespace string }
	}) bool {
		return x.Name == context
	})
	if at < 0 {
		return identity{}, fmt.Errorf("it has no context %q", context)
	}
	chosen := c.Contexts[at].Context
	id := identity{namespace: chosen.Namespace}
	found := false
	for _, k := range c.Clusters {
		if k.Name != chosen.Cluster {
			continue
		}
		found = true
		switch {
		case k.Cluster.Insecure:
			return identity{},
				fmt.Errorf("cluster %q: insecure-skip-tls-verify is not supported: give its certificate-authority",
					k.Name)
		case k.Cluster.Proxy != "":
			return identity{}, fmt.Errorf("cluster %q: proxy-url is not supported: set HTTPS_PROXY", k.Name)
		}
		var err error
		if id.server, err = url.Parse(k.Cluster.Server); err != nil || id.server.Scheme != "https" ||
			id.server.Host == "" {
			return identity{}, fmt.Errorf("cluster %q: the server %q is not an https URL", k.Name, k.Cluster.Server)
		}
		ca, err := dataOrFile(k.Cluster.CAData, k.Cluster.CAFile, dir)
		if err != nil {
			return identity{}, fmt.Errorf("cluster %q: certificate-authority: %w", k.Name, err)
		}
		if id.tls, err = tlsConfig(ca); err != nil {
			return identity{}, fmt.Errorf("cluster %q: %w", k.Name, err)
		}
		id.tls.ServerName = k.Cluster.ServerName
	}
	if !found {
		return identity{}, fmt.Errorf("it has no cluster %q", chosen.Cluster)
	}
	for _, u := range c.Users {
		if u.Name == chosen.User {
			if err := id.authenticate(u.User, dir); err != nil {
				return identity{}, fmt.Errorf("user %q: %w", u.Name, err)
			}
			return id, nil
		}
	}
	return identity{}, fmt.Errorf("it has no user %q", chosen.User)
}

// authenticate adds a user's credentials.
func (id *identity) authenticate(u kubeUser, dir string) error {
	switch {
	case !u.Exec.IsZero() || !u.AuthProvider.IsZero():
		return errors.New(
			"credential plugins (exec, auth-provider) are not supported: use a service account's token, or a client certificate")
	case u.Username != "":
		return errors.New("a password is not supported: use a service account's token, or a client certificate")
	case u.Impersonate != "":
		return errors.New("impersonation (as) is not supported")
	case u.TokenFile != "":
		id.token = &token{file: resolve(u.TokenFile, dir)}
		_, err := id.token.get()
		return err
	case u.Token != "":
		id.token = &token{fixed: u.Token}
		return nil
	}
	cert, err := dataOrFile(u.CertData, u.CertFile, dir)
	if err != nil {
		return fmt.Errorf("client-certificate: %w", err)
	}
	key, err := dataOrFile(u.KeyData, u.KeyFile, dir)
	if err != nil {
		return fmt.Errorf("client-key: %w", err)
	}
	if cert == nil || key == nil {
		return errors.New("it has neither a token nor a client certificate")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return errors.New("the client certificate and its key do not fit together")
	}
	id.tls.Certificates = []tls.Certificate{pair}
	return nil
}

func resolve(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// dataOrFile returns base64 data, or else a file's content, or nil without both.
func dataOrFile(data, file, dir string) ([]byte, error) {
	if data != "" {
		raw, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, errors.New("it is not base64")
		}
		return raw, nil
	}
	if file == "" {
		return nil, nil
	}
	return os.ReadFile(resolve(file, dir))
}

// tlsConfig returns a configuration that verifies servers with ca, or with the system's
// authorities without one.
func tlsConfig(ca []byte) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != nil {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the certificate authority is not PEM")
		}
	}
	return c, nil
}

// tokenLife is how long a token's file is not read again. Kubernetes replaces the tokens of
// service accounts some minutes before they expire.
const tokenLife = time.Minute

// A token is a bearer token. It is safe for concurrent use.
type token struct {
	fixed, file string

	mu   sync.Mutex
	text string
	next time.Time // when to read the file again
}

// get returns the token. If its file cannot be read again, it returns the last one.
func (t *token) get() (string, error) {
	if t.file == "" {
		return t.fixed, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text != "" && time.Now().Before(t.next) {
		return t.text, nil
	}
	raw, err := os.ReadFile(t.file)
	text := strings.TrimSpace(string(raw))
	if err == nil && text == "" {
		err = fmt.Errorf("the token file %s is empty", t.file)
	}
	if err != nil {
		if t.text != "" {
			return t.text, nil
		}
		return "", fmt.Errorf("read the token: %w", err)
	}
	t.text, t.next = text, time.Now().Add(tokenLife)
	return text, nil
}
