package request

import jsonrule "github.com/berth-run/berth/internal/rule"

// The vocabulary of the rules for requests.
type (
	rule   = jsonrule.Rule
	fields = jsonrule.Fields
)

var (
	object      = jsonrule.Object
	openObject  = jsonrule.OpenObject
	checkFields = jsonrule.CheckFields
	byType      = jsonrule.ByType
	byField     = jsonrule.ByField
	merged      = jsonrule.Merged
	list        = jsonrule.List
	atLeastOne  = jsonrule.AtLeastOne
	oneSource   = jsonrule.OneSource
	text        = jsonrule.Text
	anyText     = jsonrule.AnyText
	matching    = jsonrule.Matching
	oneOf       = jsonrule.OneOf
	boolean     = jsonrule.Boolean
	onlyFalse   = jsonrule.OnlyFalse
	integer     = jsonrule.Integer
	decimal     = jsonrule.Decimal
	anyObject   = jsonrule.AnyObject
	anything    = jsonrule.Anything
	metadata    = jsonrule.Metadata
	imageURL    = jsonrule.ImageURL
	webURL      = jsonrule.WebURL

	strictFormat   = jsonrule.StrictFormat
	strictFunction = jsonrule.StrictFunction

	unsupported            = jsonrule.Unsupported
	unsupportedUnlessEmpty = jsonrule.UnsupportedUnlessEmpty
	unsupportedKind        = jsonrule.UnsupportedKind
	withUnsupported        = jsonrule.WithUnsupported

	join             = jsonrule.Join
	wire             = jsonrule.Errorf
	missing          = jsonrule.Missing
	unknownParameter = jsonrule.UnknownParameter
	wrongType        = jsonrule.WrongType
	wrongValue       = jsonrule.WrongValue
	kindOf           = jsonrule.KindOf
	clip             = jsonrule.Clip
)

func inRange[N int64 | float64](at, kind, sent string, n, least, most N) error {
	return jsonrule.InRange(at, kind, sent, n, least, most)
}
