package remote

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
)

// maxEmptyPages is the number of consecutive pages of a listing that may have nothing. A service has such pages where
// many objects were deleted.
const maxEmptyPages = 1000

// A listing bounds the pages of a service that lists without an end. The client of the service follows them itself,
// and looks neither at their places nor at their number. A listing is for one goroutine.
type listing struct {
	seen  map[[sha256.Size]byte]int // requests by the place from which they list
	empty int                       // pages since the last object
}

type listingKey struct{}

// newListing returns a listing, and a context for its requests.
func newListing(ctx context.Context) (context.Context, *listing) {
	l := &listing{seen: map[[sha256.Size]byte]int{}}
	return context.WithValue(ctx, listingKey{}, l), l
}

// found notes that the last page had an object.
func (l *listing) found() { l.empty = 0 }

// request returns an error if a request for the page at a place shows that the listing has no end. A failed request
// for one page is sent again.
func (l *listing) request(place string) error {
	key := sha256.Sum256([]byte(place)) // a place may be long
	if l.seen[key]++; l.seen[key] > attempts {
		return fmt.Errorf("the service lists from one place for the %dth time", l.seen[key])
	}
	if l.empty++; l.empty > maxEmptyPages {
		return fmt.Errorf("the service has listed %d pages without an object", maxEmptyPages)
	}
	return nil
}

// A pager is a transport that ends listings without an end.
type pager struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p pager) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if l, ok := r.Context().Value(listingKey{}).(*listing); ok && q.Has("list-type") {
		if err := l.request(q.Get("continuation-token")); err != nil {
			return nil, err
		}
	}
	return p.RoundTripper.RoundTrip(r)
}
