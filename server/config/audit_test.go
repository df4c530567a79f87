package config

import (
	"strings"
	"testing"
)

func TestAuditConfig(t *testing.T) {
	for name, tt := range map[string]struct{ config, want string }{
		"syslog":  {"{type: syslog, address: 'siem.example.com:6514', format: ecs, max_behind: 10000}", ""},
		"otlp":    {"{type: otlp, url: 'http://127.0.0.1:4318'}", ""},
		"webhook": {"{type: webhook, url: 'https://siem.example.com/berth', secret_env: SIEM_SECRET}", ""},
		"two":     {"{type: otlp, url: 'http://127.0.0.1:4318'}, {type: otlp, name: b, url: 'http://127.0.0.1:4319'}", ""},

		"no type":        {"{address: 'a:1'}", "audit.forward[0].type"},
		"another type":   {"{type: splunk}", "audit.forward[0].type"},
		"another format": {"{type: otlp, url: 'http://127.0.0.1:1', format: xml}", "audit.forward[0].format"},
		"no port":        {"{type: syslog, address: siem}", "is not HOST:PORT"},
		"plain http":     {"{type: otlp, url: 'http://s3cret.example.com'}", "audit.forward[0].url: it is not a URL such as"},
		"credentials":    {"{type: otlp, url: 'https://s3cret:s3cret@example.com'}", "audit.forward[0].url"},
		"no secret":      {"{type: webhook, url: 'https://a.example'}", "audit.forward[0].secret_env: it is missing"},
		"half a pair":    {"{type: syslog, address: 'a:1', cert_file: a}", "belong together"},
		"same names":     {"{type: otlp, url: 'http://127.0.0.1:1'}, {type: otlp, url: 'http://127.0.0.1:2'}", "there are two targets"},
		"a path as name": {"{type: otlp, name: ../x, url: 'http://127.0.0.1:1'}", "audit.forward[0].name"},
		"address of otlp": {"{type: otlp, url: 'http://127.0.0.1:1', address: 'a:1'}",
			"audit.forward[0].address: a target of the type otlp has none"},
		"negative": {"{type: otlp, url: 'http://127.0.0.1:1', max_behind: -1}", "max_behind"},
	} {
		_, err := readConfig(t, "audit: {forward: ["+tt.config+"]}")
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) ||
			err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

func TestAuditEndpoint(t *testing.T) {
	for url, want := range map[string]string{"http://127.0.0.1:4318": "http://127.0.0.1:4318/v1/logs",
		"https://a.example/": "https://a.example/v1/logs", "https://a.example/otlp": "https://a.example/otlp"} {
		if got := (&AuditTarget{Type: AuditOTLP, URL: url}).Endpoint(); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}
