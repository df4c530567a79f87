package rule

// NamePattern is the expression that names of functions and namespaces match.
const NamePattern = "^[a-zA-Z0-9_-]+$"

// Rules for names of tools.
var (
	FunctionName  = Matching(NamePattern, 128)
	NamespaceName = Matching(NamePattern, 64)
)

// Callers allows "allowed_callers": the model, programs, or both.
var Callers = AtLeastOne(List(OneOf("direct", "programmatic"), 2))
