package balance

import (
	"errors"
	"math"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A Price is the price of a million tokens of a model.
type Price struct {
	Input       berth.Amount
	CachedInput *berth.Amount // read from the cache; nil means the same as Input
	CacheWrite  *berth.Amount // written to the cache; nil means the same as Input
	Output      berth.Amount
}

// Prices are the prices of an upstream.
type Prices struct {
	Currency string           // in lower case
	Models   map[string]Price // by the upstream's names, or patterns of them: see model.Matches
}

func (p Prices) check() error {
	for _, price := range p.Models {
		for _, a := range []*berth.Amount{&price.Input, price.CachedInput, price.CacheWrite, &price.Output} {
			if a != nil && *a < 0 {
				return errors.New("a price is negative")
			}
		}
	}
	return nil
}

// of returns the price of a model: of its exact name, else of the longest pattern that
// matches.
func (p Prices) of(name string) (price Price, ok bool) {
	if price, ok = p.Models[name]; ok {
		return price, true
	}
	longest := ""
	for pattern, candidate := range p.Models {
		if model.Matches(pattern, name) && (!ok || len(pattern) > len(longest) || len(pattern) == len(longest) &&
			pattern < longest) {
			price, ok, longest = candidate, true, pattern
		}
	}
	return price, ok
}

// cost returns the cost of a turn, or nil if the price is not known.
func (p Prices) cost(name string, u berth.Usage) *berth.Cost {
	price, ok := p.of(name)
	if !ok {
		return nil
	}
	cached, written := u.InputTokenDetails.CachedTokens, u.InputTokenDetails.CacheWriteTokens
	or := func(a *berth.Amount) berth.Amount {
		if a == nil {
			return price.Input
		}
		return *a
	}
	return &berth.Cost{Currency: p.Currency, Value: tokens(u.InputTokens-cached-written, price.Input) + tokens(cached,
		or(price.CachedInput)) +
		tokens(written, or(price.CacheWrite)) + tokens(u.OutputTokens, price.Output)}
}

// tokens returns the price of n tokens, rounded. A negative n costs nothing.
func tokens(n int, perMillion berth.Amount) berth.Amount {
	return berth.Amount(math.Round(float64(max(n, 0)) * float64(perMillion) / 1e6))
}
