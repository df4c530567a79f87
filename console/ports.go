package console

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// A portsPage is the page of a container's ports.
type portsPage struct {
	Tab     tab
	Form    formToken
	Port    int     // 0 if none was opened
	Frame   string  // path of the link to the port, which shows it in an origin of its own
	Link    string  // the link for other windows
	HostURL string  // the link at the port's own host; "" if the server has no domain for ports
	Code    *qrCode // of the link that another device can open
	Expires int64
	Error   string
}

// Local reports whether only this machine has the address of the link.
func (p portsPage) Local() bool {
	at, err := url.Parse(cmp.Or(p.HostURL, p.Link))
	if err != nil {
		return true
	}
	ip := net.ParseIP(at.Hostname())
	return ip != nil && ip.IsLoopback() || at.Hostname() == "localhost" ||
		strings.HasSuffix(at.Hostname(), ".localhost")
}

// Page returns the path of the page.
func (p portsPage) Page() string { return p.Tab.Path() + "/ports" }

// show serves GET /console/containers/{container}/ports.
func (p *portsPage) show(v *visit) error {
	c, err := readContainer(v)
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "ports", "Ports", portsPage{Tab: tab{c, "ports", v.formToken()}, Form: v.formToken()})
}

// open serves POST /console/containers/{container}/ports: it creates a link to a port, and shows
// it in a frame. The API's answers under a link have a policy that gives them an origin of their own.
func (p *portsPage) open(v *visit) error {
	c, err := readContainer(v)
	if err != nil {
		return err
	}
	*p = portsPage{Tab: tab{c, "ports", v.formToken()}, Form: v.formToken()}
	show := func(status int, message string) error {
		p.Error = message
		return v.show(status, "ports", "Ports", p)
	}
	if p.Port, err = strconv.Atoi(strings.TrimSpace(v.form.fields.Get("port"))); err != nil || p.Port < 1 ||
		p.Port > 65535 {
		p.Port = 0
		return show(http.StatusBadRequest, "A port is a number from 1 to 65535.")
	}
	var link struct {
		URL       string `json:"url"`
		HostURL   string `json:"host_url"`
		ExpiresAt int64  `json:"expires_at"`
	}
	if err := v.post("/v1/containers/"+url.PathEscape(string(c.ID))+"/ports/"+strconv.Itoa(p.Port), struct{}{},
		&link); err != nil {
		return err
	}
	at, err := url.Parse(link.URL)
	if err != nil || !strings.HasPrefix(at.Path, "/preview/") {
		return show(http.StatusBadGateway, "The link to the port is not one of this server.")
	}
	p.Frame, p.Link, p.HostURL, p.Expires = at.RequestURI(), link.URL, link.HostURL, link.ExpiresAt
	p.Code = newQRCode(cmp.Or(p.HostURL, p.Link))
	allowFrames(v)
	return show(http.StatusOK, "")
}
