package rule

import "github.com/berth-run/berth"

// StrictFormat makes the rule of a json_schema format check its schema. The schema must
// be well formed; with "strict", it must obey OpenAI's rules for strict schemas.
func StrictFormat(r Rule) Rule {
	return strictly(r, "schema", "invalid_json_schema", "response_format")
}

// StrictFunction makes the rule of a function check its parameters as StrictFormat
// checks a schema.
func StrictFunction(r Rule) Rule {
	return strictly(r, "parameters", "invalid_function_parameters", "function")
}

func strictly(r Rule, field, code, what string) Rule {
	return func(at string, v any) error {
		if err := r(at, v); err != nil {
			return err
		}
		obj := v.(map[string]any)
		schema, ok := obj[field].(map[string]any)
		if !ok {
			return nil
		}
		check := berth.SchemaProblem
		if obj["strict"] == true {
			check = berth.StrictProblem
		}
		if problem := check(schema); problem != "" {
			name, _ := obj["name"].(string)
			return Errorf(code, Join(at, field), "Invalid schema for %s '%s': %s", what, Clip(name), problem)
		}
		return nil
	}
}
