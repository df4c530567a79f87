package config

import (
	"math"
	"net"
	"strconv"
)

// IsLoopback reports whether an address is on a loopback interface.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// portProblem returns the problem of an address's port, or "".
func portProblem(port string) string {
	if n, err := strconv.ParseUint(port, 10, 64); err == nil && n > math.MaxUint16 {
		return "a port out of range"
	}
	switch {
	case port == "":
		return "no port"
	case !isPort(port):
		return "an unknown port"
	}
	return ""
}

// isPort reports whether a text is a port: a number, or the name of a service such as http.
func isPort(text string) bool {
	_, err := net.LookupPort("tcp", text)
	return err == nil && text != ""
}
