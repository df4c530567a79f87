package container

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
)

// A client's proxy must be one host and port that containers may reach, with credentials that SOCKS5 can carry.
func TestClientProxyIsChecked(t *testing.T) {
	inside, err := egress.ParseRule("10.0.0.0/8:1080")
	if err != nil {
		t.Fatal(err)
	}
	ns := &networks{opts: &Options{Network: NetworkOptions{Private: []egress.Rule{inside}}}}
	for name, tt := range map[string]struct {
		proxy berth.EgressProxy
		ok    bool
	}{
		"a name":             {berth.EgressProxy{Address: "proxy.example.com:1080", Username: "u", Password: "p"}, true},
		"an address":         {berth.EgressProxy{Address: "93.184.216.34:1080"}, true},
		"a listed address":   {berth.EgressProxy{Address: "10.1.2.3:1080"}, true},
		"another port of it": {berth.EgressProxy{Address: "10.1.2.3:22"}, false},
		"the loopback":       {berth.EgressProxy{Address: "127.0.0.1:1080"}, false},
		"metadata":           {berth.EgressProxy{Address: "169.254.169.254:80"}, false},
		"no port":            {berth.EgressProxy{Address: "proxy.example.com"}, false},
		"any":                {berth.EgressProxy{Address: "*:1080"}, false},
		"a pattern":          {berth.EgressProxy{Address: "*.example.com:1080"}, false},
		"a prefix":           {berth.EgressProxy{Address: "93.184.216.0/24:1080"}, false},
		"datagrams":          {berth.EgressProxy{Address: "93.184.216.34:1080/udp"}, false},
		"a URL":              {berth.EgressProxy{Address: "socks5://proxy.example.com:1080"}, false},
		"a password alone":   {berth.EgressProxy{Address: "proxy.example.com:1080", Password: "p"}, false},
		"a long name": {berth.EgressProxy{Address: "proxy.example.com:1080",
			Username: strings.Repeat("u", 256)}, false},
		"no certificate":           {berth.EgressProxy{Address: "proxy.example.com:1080", TLS: true, CA: "x"}, false},
		"a name of TLS without it": {berth.EgressProxy{Address: "proxy.example.com:1080", ServerName: "x"}, false},
	} {
		if err := ns.checkProxy(&tt.proxy); (err == nil) != tt.ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
