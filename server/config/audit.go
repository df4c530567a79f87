package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// Audit configures what becomes of the audit record.
type Audit struct {
	Forward []AuditTarget `yaml:"forward"` // systems that get all entries
}

// An AuditTarget is a system to which entries of the audit record are sent.
type AuditTarget struct {
	Name   string `yaml:"name"`   // of the file with the place in the record, and in logs. Default: the type
	Type   string `yaml:"type"`   // syslog, otlp or webhook
	Format string `yaml:"format"` // berth, ecs or ocsf. Default: berth

	Address    string `yaml:"address"`     // HOST:PORT of a syslog collector, which must speak TLS
	URL        string `yaml:"url"`         // of the webhook, or of a collector of OpenTelemetry
	CAFile     string `yaml:"ca_file"`     // certificates of the authorities to trust. Default: the system's
	CertFile   string `yaml:"cert_file"`   // this server's certificate, if the target asks for one
	KeyFile    string `yaml:"key_file"`    // and its key
	HeadersEnv string `yaml:"headers_env"` // variable with further headers, NAME=VALUE with commas between them
	SecretEnv  string `yaml:"secret_env"`  // variable with the secret that signs a webhook's requests: whsec_…

	// MaxBehind is the number of waiting entries above which the server takes no new work and signs nobody in.
	// Default: 0, any number.
	MaxBehind int64 `yaml:"max_behind"`
}

// The values of audit.forward.type.
const (
	AuditSyslog  = "syslog"
	AuditOTLP    = "otlp"
	AuditWebhook = "webhook"
)

// Title returns the name of the target.
func (t *AuditTarget) Title() string {
	if t.Name != "" {
		return t.Name
	}
	return t.Type
}

// Endpoint returns the URL of an HTTP target. That of a collector without a path gets that of OTLP's logs.
func (t *AuditTarget) Endpoint() string {
	if u, err := url.Parse(t.URL); err == nil && t.Type == AuditOTLP && strings.Trim(u.Path, "/") == "" {
		return u.JoinPath("v1", "logs").String()
	}
	return t.URL
}

// Headers returns the headers that requests have besides their own.
func (t *AuditTarget) Headers() (map[string]string, error) {
	if t.HeadersEnv == "" {
		return nil, nil
	}
	value := os.Getenv(t.HeadersEnv)
	if value == "" {
		return nil, fmt.Errorf("%s is not set in the environment", t.HeadersEnv)
	}
	return headerPairs(t.HeadersEnv, value)
}

// Secret returns the secret of a webhook.
func (t *AuditTarget) Secret() (string, error) {
	secret := strings.TrimSpace(os.Getenv(t.SecretEnv))
	if secret == "" {
		return "", fmt.Errorf("%s is not set in the environment", t.SecretEnv)
	}
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	if key, err := base64.StdEncoding.DecodeString(encoded); !ok || err != nil || len(key) < 16 {
		return "", fmt.Errorf("%s is not whsec_ and at least 16 bytes in base64; make one with: echo whsec_$(openssl rand -base64 32)",
			t.SecretEnv)
	}
	return secret, nil
}

// targetName is what names of targets, which are those of files, look like.
var targetName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// checkAudit checks the targets.
func (c *Config) checkAudit() error {
	var wrong []error
	names := map[string]bool{}
	for i := range c.Audit.Forward {
		t := &c.Audit.Forward[i]
		fail := func(key, format string, args ...any) {
			wrong = append(wrong, fmt.Errorf("audit.forward[%d].%s: "+format, append([]any{i, key}, args...)...))
		}
		if t.Type == "" {
			fail("type", "it is missing: %s, %s or %s", AuditSyslog, AuditOTLP, AuditWebhook)
			continue
		}
		if !targetName.MatchString(t.Title()) {
			fail("name", "%q is not up to 64 small letters, digits and hyphens", t.Title())
		}
		if names[t.Title()] {
			fail("name", "there are two targets %q; give each a name of its own", t.Title())
		}
		names[t.Title()] = true
		if (t.CertFile == "") != (t.KeyFile == "") {
			fail("cert_file", "cert_file and key_file belong together")
		}
		for key, set := range map[string]bool{"address": t.Address != "", "url": t.URL != "",
			"secret_env": t.SecretEnv != "", "headers_env": t.HeadersEnv != ""} {
			syslog := t.Type == AuditSyslog
			if set && (key == "address" != syslog || key == "secret_env" && t.Type != AuditWebhook) {
				fail(key, "a target of the type %s has none", t.Type)
			}
		}
		if t.Type == AuditSyslog {
			if host, port, err := net.SplitHostPort(t.Address); err != nil || host == "" || portProblem(port) != "" {
				fail("address", "%q is not HOST:PORT, such as siem.example.com:6514", t.Address)
			}
			continue
		}
		if u, err := url.Parse(t.URL); err != nil || u.Hostname() == "" || u.User != nil ||
			u.Scheme != "https" && (u.Scheme != "http" || !IsLoopback(net.JoinHostPort(u.Hostname(), "0"))) {
			fail("url", "it is not a URL such as https://siem.example.com/berth; plain http reaches this machine only") // may be secret
		}
		if t.Type == AuditWebhook && t.SecretEnv == "" {
			fail("secret_env", "it is missing: the variable with the secret that signs requests")
		}
	}
	return errors.Join(wrong...)
}
