package rule

// Unsupported refuses a field that OpenAI knows and this server does not serve.
func Unsupported(at string, _ any) error {
	return Errorf("unsupported_parameter", at, "Unsupported parameter: '%s' is not supported by this server.", at)
}

// UnsupportedUnlessEmpty allows an empty list, which asks for nothing.
func UnsupportedUnlessEmpty(at string, v any) error {
	if values, ok := v.([]any); ok && len(values) == 0 {
		return nil
	}
	return Unsupported(at, v)
}

// UnsupportedKind refuses an object of a type that OpenAI knows and this server
// does not serve.
func UnsupportedKind(what string) Rule {
	return func(at string, v any) error {
		at = Join(at, "type")
		kind, _ := v.(map[string]any)["type"].(string)
		return Errorf("unsupported_value", at, "Unsupported value: '%s' %s are not supported by this server.", kind, what)
	}
}

// WithUnsupported adds rules that refuse the types which OpenAI knows and this
// server does not serve.
func WithUnsupported(served map[string]Rule, what string, unserved []string) map[string]Rule {
	for _, kind := range unserved {
		served[kind] = UnsupportedKind(what)
	}
	return served
}

// OnlyFalse allows false for a feature that this server does not have.
func OnlyFalse(at string, v any) error {
	if err := Boolean(at, v); err != nil || v == false {
		return err
	}
	return Errorf("unsupported_value", at, "Unsupported value: '%s' cannot be true with this server.", at)
}
