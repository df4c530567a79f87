package rule

// NamePattern is the expression that names of functions and namespaces match.
const NamePattern = "^[a-zA-Z0-9_-]+$"

// Rules for names of tools.
var (
	FunctionName  = Matching(NamePattern, 128)
	NamespaceName = Matching(NamePattern, 64)
)

// Callers allows "allowed_callers" that contain the model only. This server does not
// support programs that call tools.
var Callers = AtLeastOne(List(func(at string, v any) error {
	if err := OneOf("direct", "programmatic")(at, v); err != nil {
		return err
	}
	if v == "programmatic" {
		return Errorf("unsupported_value", at, "Unsupported value: '%s' cannot be 'programmatic'. Programs that call tools are not supported by this server.", at)
	}
	return nil
}, 2))
