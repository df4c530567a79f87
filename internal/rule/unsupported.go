package rule

// Unsupported refuses a field of OpenAI's API that this server does not support.
func Unsupported(at string, _ any) error {
	return Errorf("unsupported_parameter", at, "Unsupported parameter: '%s' is not supported by this server.", at)
}

// UnsupportedUnlessEmpty allows an empty list and refuses all else as Unsupported does.
func UnsupportedUnlessEmpty(at string, v any) error {
	if values, ok := v.([]any); ok && len(values) == 0 {
		return nil
	}
	return Unsupported(at, v)
}

// UnsupportedKind refuses an object whose type is OpenAI's but not supported by this
// server. what is the plural noun of such objects for the error.
func UnsupportedKind(what string) Rule {
	return func(at string, v any) error {
		at = Join(at, "type")
		kind, _ := v.(map[string]any)["type"].(string)
		return Errorf("unsupported_value", at, "Unsupported value: '%s' %s are not supported by this server.", kind,
			what)
	}
}

// WithUnsupported adds rules to served that refuse the unserved types as
// UnsupportedKind does. It returns served.
func WithUnsupported(served map[string]Rule, what string, unserved []string) map[string]Rule {
	for _, kind := range unserved {
		served[kind] = UnsupportedKind(what)
	}
	return served
}

// OnlyFalse allows only false, for features that this server does not support.
func OnlyFalse(at string, v any) error {
	if err := Boolean(at, v); err != nil || v == false {
		return err
	}
	return Errorf("unsupported_value", at, "Unsupported value: '%s' cannot be true with this server.", at)
}
