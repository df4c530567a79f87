package preview

import (
	"context"
	"net/http"
	"net/http/httptrace"
)

// Final returns a transport without interim (1xx) answers. httputil.ReverseProxy would
// forward these with all headers, and clear the header of the answer.
func Final(next http.RoundTripper) http.RoundTripper { return finalTransport{next} }

type finalTransport struct{ next http.RoundTripper }

func (f finalTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return f.next.RoundTrip(r.WithContext(untracedContext{r.Context()}))
}

// An untracedContext context hides the httptrace.ClientTrace of its parent.
type untracedContext struct{ context.Context }

func (c untracedContext) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
