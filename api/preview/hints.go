package preview

import (
	"context"
	"net/http"
	"net/http/httptrace"
)

// Final returns a transport without interim (1xx) answers. httputil.ReverseProxy would
// forward these with all headers, and clear the header of the answer.
func Final(next http.RoundTripper) http.RoundTripper { return final{next} }

type final struct{ next http.RoundTripper }

func (f final) RoundTrip(r *http.Request) (*http.Response, error) {
	return f.next.RoundTrip(r.WithContext(untraced{r.Context()}))
}

// An untraced context hides the httptrace.ClientTrace of its parent.
type untraced struct{ context.Context }

func (c untraced) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
