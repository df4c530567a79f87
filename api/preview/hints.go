package preview

import (
	"context"
	"net/http"
	"net/http/httptrace"
)

// Final returns a transport whose answers begin with their final status. What comes
// before that, httputil.ReverseProxy would pass on with any header, and with it clear
// the header that the answer has already.
func Final(next http.RoundTripper) http.RoundTripper { return final{next} }

type final struct{ next http.RoundTripper }

func (f final) RoundTrip(r *http.Request) (*http.Response, error) {
	return f.next.RoundTrip(r.WithContext(untraced{r.Context()}))
}

// An untraced context has no trace of its request.
type untraced struct{ context.Context }

func (c untraced) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
