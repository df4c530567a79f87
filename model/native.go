package model

// A ToolOwner is a Provider whose upstream may have hosted tools itself, such as
// image_generation.
type ToolOwner interface {
	// HasTool reports whether the upstream offers a model the tool of a type of "tools". If
	// so, its FunctionTool has a Native, which the provider sends in place of the function.
	HasTool(model, toolType string) bool
}

// HasTool reports whether a provider's upstream has a hosted tool itself.
func HasTool(p Provider, model, toolType string) bool {
	o, ok := p.(ToolOwner)
	return ok && o.HasTool(model, toolType)
}
